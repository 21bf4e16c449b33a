"""The lock file: canonical, verified on reading, and edits refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import yamlio
from muster.configure import lock
from muster.configure.difference import differences
from muster.configure.recipe import Pool, Recipe
from muster.errors import BadInputError
from tests.configure.cases import NAMES, recipe_of


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str) -> None:
    recipe = recipe_of(name)
    text = lock.write(recipe)
    read = lock.parse(yamlio.loads(text, name), name)
    assert read == recipe
    assert lock.write(read) == text
    assert differences(read, recipe) == ()


@given(st.data())
def test_any_changed_word_is_noticed(data: st.DataObject) -> None:
    lines = lock.write(recipe_of("h100-any")).splitlines(keepends=True)
    content = [at for at, line in enumerate(lines) if ": " in line and not line.startswith("#")]
    at = data.draw(st.sampled_from(content))
    lines[at] = lines[at].rstrip("\n").rstrip("'") + "x" + ("'" if lines[at].rstrip().endswith("'") else "") + "\n"
    with pytest.raises(BadInputError):
        lock.parse(yamlio.loads("".join(lines), "edited"), "edited")


def test_comments_and_layout_do_not_count() -> None:
    recipe = recipe_of("h100-any")
    text = "# approved on Monday\n" + lock.write(recipe).replace("components:\n", "components:   # all of them\n")
    assert lock.parse(yamlio.loads(text, "commented"), "commented") == recipe


def relocked(recipe: Recipe, old: str, new: str) -> str:
    """A file whose digest is right and whose content is not what Muster writes."""
    text = lock.write(recipe)
    assert old in text
    content = yamlio.loads(text.replace(old, new, 1), "test")
    try:
        content["digest"] = lock.digest_of(content)
    except OverflowError:
        content["digest"] = "sha256:none"
    return yamlio.dumps(content)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- name: nfd\n", "- name: 'a; rm -rf'\n", "DNS labels"),
        ("version: v26.7.0", "version: '>= 1'", "exact version"),
        ("repository: 'https://charts.jetstack.io'", "repository: 'file:///etc'", "chart repository"),
        ("  - cert-manager\n", "  - nowhere\n", "not part of the recipe"),
        ("timeoutS: 600", "timeoutS: 0", "timeoutS"),
        ("criteria:", "kriteria:", "understands"),
        ("accelerator: h100", "akcelerator: h100", "'akcelerator' is no dimension"),
        ("timeoutS: 600", "timeoutS: 1" + "0" * 30, "64 bits"),
    ],
)
def test_what_cannot_be_deployed_is_refused(old: str, new: str, message: str) -> None:
    text = relocked(recipe_of("h100-any"), old, new)
    with pytest.raises(BadInputError, match=message):
        lock.parse(yamlio.loads(text, "forged"), "forged")


@pytest.mark.parametrize("content", ["", "[]", "kind: Recipe", "apiVersion: muster.dev/v1alpha1\nkind: Recipe\n"])
def test_what_is_no_recipe_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(content)
    with pytest.raises(BadInputError, match=r"r\.yaml"):
        lock.read(path)


def test_differences() -> None:
    found = {d.path: d for d in differences(recipe_of("h100-any"), recipe_of("gb200-any"))}
    assert found["criteria.accelerator"].before == "h100"
    assert found["criteria.accelerator"].after == "gb200"
    assert "digest" not in found


def test_a_pool_of_an_unknown_dimension_is_refused() -> None:
    pools = tuple(
        Pool(name=name, criteria={name: "h100"}, node_selector={"p": name}) for name in ("accelerator", "x")
    )
    recipe = msgspec.structs.replace(recipe_of("h100-any"), pools=pools)
    with pytest.raises(BadInputError, match="'x' is no dimension"):
        lock.parse(yamlio.loads(lock.write(recipe), "forged"), "forged")
