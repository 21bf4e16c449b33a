"""Whether a cluster and its nodes satisfy the constraints of a recipe. Pure. Unknown is never a pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from muster.configure.constraints import NODE_NAMES, Kind, kind_of, label_holds, scheme_of
from muster.configure.recipe import Pool, Recipe
from muster.configure.versions import Range, Version
from muster.errors import BadInputError

CLUSTER_NAMES = ("kubernetes.version",)
"""Constraints of the cluster that a reading can answer. Floors of charts hold by the pins of the recipe, figures of
tests by a certification; a snapshot says nothing about either."""


class Answer(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Subject:
    """A cluster or a node, as a snapshot shows it."""

    name: str
    readings: Mapping[str, str]
    is_cluster: bool = False
    labels: Mapping[str, str] | None = None
    """None: the snapshot does not hold labels."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Reading that could not be taken -> why."""
    reason: str = ""
    """Why nothing is known, where that is so."""


@dataclass(frozen=True, slots=True)
class Judgement:
    subject: str
    constraint: str
    wanted: str
    found: str
    answer: Answer
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        plain = {
            "subject": self.subject,
            "constraint": self.constraint,
            "wanted": self.wanted,
            "found": self.found,
            "answer": self.answer.value,
        }
        return plain | ({"reason": self.reason} if self.reason else {})


def judge(recipe: Recipe, subjects: Iterable[Subject]) -> tuple[Judgement, ...]:
    """Hold every constraint of `recipe` against every subject that it is about, sorted by subject and constraint."""
    found: list[Judgement] = []
    for subject in subjects:
        for name, text, reason in _wanted(recipe, subject):
            found.append(_unknown(subject, name, text, reason) if reason else _judge(subject, name, text))
    return tuple(sorted(found, key=lambda j: (j.subject, j.constraint)))


def holds(name: str, text: str, reading: str) -> bool | None:
    """Whether the reading satisfies the constraint; None when it cannot be read as what the constraint is about.

    Not for constraints on labels. Raises BadInputError for a constraint that Muster does not know.
    """
    scheme = scheme_of(kind_of(name))
    if scheme is None:
        return reading == text
    wanted = Range.parse(text, scheme)
    try:
        return wanted.contains(Version.parse(reading, scheme))
    except BadInputError:
        return None


def _wanted(recipe: Recipe, subject: Subject) -> Iterator[tuple[str, str, str]]:
    """(constraint, its text, why it cannot be judged or nothing)."""
    if subject.is_cluster:
        for name in CLUSTER_NAMES:
            if name in recipe.constraints:
                yield name, recipe.constraints[name], ""
        return
    if not recipe.pools:
        yield from ((n, text, "") for n, text in recipe.constraints.items() if n in NODE_NAMES)
        return
    pools = _pools_of(recipe, subject)
    if not pools:
        yield "pool", " or ".join(pool.name for pool in recipe.pools), "its labels fit no pool of the recipe"
    for name in sorted({name for pool in pools for name in pool.constraints}):
        texts = sorted({pool.constraints.get(name, "any") for pool in pools})
        reason = "" if len(texts) == 1 else "the labels that say to which pool the node belongs are not known"
        yield name, " or ".join(texts), reason


def _pools_of(recipe: Recipe, subject: Subject) -> tuple[Pool, ...]:
    """Pools to which the node may belong; none when its labels fit no pool."""
    labels = subject.labels
    if labels is None:
        return recipe.pools
    return tuple(pool for pool in recipe.pools if pool.node_selector.items() <= labels.items())


def _judge(subject: Subject, name: str, text: str) -> Judgement:
    if kind_of(name) is Kind.LABEL:
        return _judge_labels(subject, name, text)
    reading = subject.readings.get(name)
    if reading is None:
        reason = subject.reasons.get(name) or subject.reason or "the snapshot does not hold this reading"
        return _unknown(subject, name, text, reason)
    answer = holds(name, text, reading)
    if answer is None:
        return _unknown(subject, name, text, "the reading is no version", reading)
    return Judgement(subject.name, name, text, reading, Answer.PASSED if answer else Answer.FAILED)


def _judge_labels(subject: Subject, name: str, text: str) -> Judgement:
    labels = subject.labels
    if labels is None:
        return _unknown(subject, name, text, subject.reason or "the snapshot does not hold its labels")
    wrong = []
    for term in text.split(" "):
        if not label_holds(term, labels):
            key = term.removeprefix("!").partition("=")[0]
            wrong.append(f"{key}={labels[key]}" if key in labels else f"no {key}")
    answer = Answer.FAILED if wrong else Answer.PASSED
    return Judgement(subject.name, name, text, ", ".join(wrong) or "as wanted", answer)


def _unknown(subject: Subject, name: str, text: str, reason: str, found: str = "") -> Judgement:
    return Judgement(subject.name, name, text, found, Answer.UNKNOWN, reason)
