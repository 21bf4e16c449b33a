"""Every combination of the vocabularies: it resolves, or one sentence says what would; the same bytes every time."""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
from functools import cache
from typing import TypeVar

import msgspec
import pytest

from muster.configure import lock
from muster.configure.catalogue import Catalogue, load
from muster.configure.criteria import VOCABULARY, Criteria, Dimension, parse_criteria
from muster.configure.resolve import leaf_names, resolve
from muster.errors import BadInputError

OKE_UBUNTU_BUILDS_ON_OL = {("os", "ol")}
"""The Ubuntu recipes of OKE are based on those for Oracle Linux, as in the reference catalogue."""
V = TypeVar("V")
ADD = re.compile(r"No recipe is for (.+) alone; state also .+\. Add one of: (.+?)(?:; and \d+ more)?\.")
CLOSEST = re.compile(r"No recipe carries (.+) in (.+); recipes that come closest: (.+)\.")
NOTHING = re.compile(r"No recipe is for (.+); 'muster recipe list' shows what there is\.")
WAITING = re.compile(r"(?:The recipe|Every recipe) for (.+) is not usable yet(?:, for example)?: .+\.")


@cache
def outcome(stated: tuple[tuple[str, str], ...]) -> str:
    """`resolved`, or the sentence."""
    try:
        recipe = resolve(parse_criteria(dict(stated)), load()).recipe
    except BadInputError as error:
        return str(error)
    assert recipe.criteria == dict(stated)
    # Jointly sufficient: one overlay carries all of it, and whatever else applies says nothing that was not stated.
    applied = [load().overlays[name].criteria for name in recipe.overlays]
    assert any(criteria == dict(stated) for criteria in applied)
    said = {pair for criteria in applied for pair in criteria.items()}
    on_oke_ubuntu = {("service", "oke"), ("os", "ubuntu")} <= {*stated}
    assert said - {*stated} <= (OKE_UBUNTU_BUILDS_ON_OL if on_oke_ubuntu else set())
    return "resolved"


def pairs(text: str) -> dict[str, str]:
    found = dict(part.split("=") for part in text.split(" "))
    assert set(found) <= {d.value for d in Dimension}
    return found


def key(stated: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((d.value, stated[d.value]) for d in Dimension if d.value in stated)


def promised(stated: dict[str, str], sentence: str) -> list[dict[str, str]]:
    """The recipes that the sentence says there are; none for a recipe that waits for something."""
    if found := ADD.fullmatch(sentence):
        assert pairs(found[1]) == stated
        completions = [pairs(part) for part in found[2].split("; ")]
        assert completions
        assert all(not completion.keys() & stated.keys() for completion in completions)
        return [stated | completion for completion in completions]
    if found := CLOSEST.fullmatch(sentence):
        assert pairs(found[1]).items() <= stated.items()
        assert pairs(found[2]) == stated
        return [pairs(part) for part in found[3].split("; ")]
    waiting = WAITING.fullmatch(sentence) or NOTHING.fullmatch(sentence)
    assert waiting, sentence
    assert pairs(waiting[1]) == stated
    return []


@pytest.mark.parametrize("step", [pytest.param(29, id="sample"), pytest.param(1, id="all", marks=pytest.mark.full)])
def test_the_product_resolves_or_says_what_does(step: int) -> None:
    values = [(None, *VOCABULARY[d]) for d in Dimension]
    assert [len(v) for v in values] == [13, 11, 3, 7, 7]
    counts = {"resolved": 0, "refused": 0}
    for combination in itertools.islice(itertools.product(*values), 0, None, step):
        stated = {d.value: v for d, v in zip(Dimension, combination, strict=True) if v}
        if not stated:
            with pytest.raises(BadInputError, match="Nothing was stated"):
                parse_criteria(stated)
            continue
        sentence = outcome(key(stated))
        if sentence == "resolved":
            counts["resolved"] += 1
            continue
        counts["refused"] += 1
        assert "\n" not in sentence
        for other in promised(stated, sentence):
            assert outcome(key(other)) == "resolved", (stated, other)
    assert sum(counts.values()) == (13 * 11 * 3 * 7 * 7 - 1) // step
    assert counts["resolved"] > 80 // step


def usable_leaves(catalogue: Catalogue) -> list[Criteria]:
    found = [parse_criteria(dict(catalogue.overlays[name].criteria)) for name in leaf_names(catalogue)]
    return [criteria for criteria in found if outcome(tuple((d.value, v) for d, v in criteria.items())) == "resolved"]


def shuffled(order: random.Random, entries: dict[str, V]) -> dict[str, V]:
    names = list(entries)
    order.shuffle(names)
    return {name: entries[name] for name in names}


def turned(catalogue: Catalogue, seed: int) -> Catalogue:
    """The catalogue as if its files had been read in another order."""
    order = random.Random(seed)

    return msgspec.structs.replace(
        catalogue,
        components=shuffled(order, catalogue.components),
        overlays=shuffled(order, catalogue.overlays),
        mixins=shuffled(order, catalogue.mixins),
        manifests=shuffled(order, catalogue.manifests),
    )


def test_every_leaf_is_the_same_under_every_order_of_files() -> None:
    catalogue = load()
    for seed, criteria in enumerate(usable_leaves(catalogue)):
        wanted = msgspec.json.encode(resolve(criteria, catalogue).recipe)
        assert msgspec.json.encode(resolve(criteria, turned(catalogue, seed)).recipe) == wanted


def test_a_hundred_runs_give_the_same_bytes() -> None:
    catalogue = load()
    criteria = parse_criteria({"service": "eks", "accelerator": "h100", "intent": "training", "os": "ubuntu"})
    texts = {lock.write(resolve(criteria, turned(catalogue, seed)).recipe) for seed in range(100)}
    assert len(texts) == 1


def test_every_profile_value_of_every_leaf_resolves() -> None:
    catalogue = load()
    seen = 0
    for criteria in usable_leaves(catalogue):
        for name in resolve(criteria, catalogue).recipe.overlays:
            profile = catalogue.overlays[name].profile
            for value in sorted(profile.values) if profile else ():
                assert profile is not None
                recipe = resolve(criteria, catalogue, {profile.name: value}, 16).recipe
                assert recipe.profiles == {profile.name: value}
                assert recipe.nodes == 16
                seen += 1
    assert seen > 20


ALL_LEAVES = """
import hashlib, sys
from muster.configure import lock
from muster.configure.catalogue import load
from muster.configure.criteria import parse_criteria
from muster.configure.resolve import leaf_names, resolve
from muster.errors import BadInputError
digest = hashlib.sha256()
for name in leaf_names(load()):
    try:
        text = lock.write(resolve(parse_criteria(dict(load().overlays[name].criteria)), load()).recipe)
    except BadInputError as error:
        text = str(error)
    digest.update(text.encode())
print(digest.hexdigest())
"""


@pytest.mark.full
def test_every_leaf_is_the_same_under_every_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", ALL_LEAVES],
            capture_output=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert len(outputs) == 1
