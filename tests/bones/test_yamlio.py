"""YAML input is hostile until parsed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import yamlio
from muster.errors import BadInputError

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"

scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@given(documents)
def test_what_is_written_is_read_back(value: object) -> None:
    assert yamlio.loads(yamlio.dumps(value), "text") == value


@pytest.mark.parametrize(
    "text", ["yes", "on", "0x1f", "1e3", "null", "~", "2026-01-05", "1.30", "", " a", "a: b", "#"]
)
def test_text_that_looks_like_something_else_survives(text: str) -> None:
    assert yamlio.loads(yamlio.dumps({"v": text}), "text") == {"v": text}


@pytest.mark.parametrize("text", ["y", "n", "Y", "1e3", "12e45678", "0o17", "12:30", "nan", "2026-01-05"])
def test_text_that_another_reader_would_take_for_a_number_or_a_truth_value_is_quoted(text: str) -> None:
    assert yamlio.dumps({"v": text}) == f"v: '{text}'\n"


@pytest.mark.parametrize("text", ["12:30", "22:22", "190:20:30", "1:30.5", "="])
def test_what_is_text_to_helm_and_kubectl_is_text_here(text: str) -> None:
    assert yamlio.loads(f"v: {text}", "text") == {"v": text}


def test_a_date_stays_text() -> None:
    assert yamlio.loads("v: 2026-01-05", "text") == {"v": "2026-01-05"}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: 1\na: 2\n", "duplicate key 'a'"),
        ("a: {b: 1, b: 2}\n", "duplicate key 'b'"),
        (BOMB, "aliases are not accepted"),
        ("a: [", "line"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("? [a]\n: 1\n", "key must be a scalar"),
        ("a: 1\n---\nb: 2\n", "more than 1 YAML document"),
        ("\x00", "not valid YAML"),
        ("[" * 100_000, "not valid YAML"),
        ("a: 0o8_\nb: !!int x", "put text in quotes"),
        (f"a: {'1' * 5000}", "put text in quotes"),
        ("a: !!bool x", "put text in quotes"),
        ("a: !!set {x}", "not valid YAML"),
        ("a: !!omap [b: 1]", "not valid YAML"),
        ("a: !!binary eA==", "not valid YAML"),
    ],
)
def test_bad_yaml_is_one_sentence(text: str, part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        yamlio.loads(text, "recipe.yaml")
    message = str(caught.value)
    assert part in message
    assert message.startswith("recipe.yaml")
    assert "\n" not in message


def test_a_large_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(yamlio.MAX_BYTES + 1)
    with pytest.raises(BadInputError, match="larger than 10 MiB"):
        yamlio.load(path)


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(BadInputError, match=f"Cannot read {path}"):
            yamlio.load(path)


@pytest.mark.parametrize(("text", "number"), [("1e3", 1000.0), ("1.5e3", 1500.0), ("-2E-1", -0.2), (".5e+1", 5.0)])
def test_what_helm_reads_as_a_number_is_one(text: str, number: float) -> None:
    assert yamlio.loads(f"a: {text}", "x") == {"a": number}


@pytest.mark.parametrize("text", ["1e", "e3", "1e3x", "v1e3", "'1e3'", "12e3f"])
def test_what_only_looks_like_a_number_is_text(text: str) -> None:
    assert isinstance(yamlio.loads(f"a: {text}", "x")["a"], str)


def test_very_many_small_values_are_refused_before_they_take_memory() -> None:
    """Each takes some hundred times its size in the file while it is read."""
    with pytest.raises(BadInputError, match=r"^many holds more than 1500000 values; split the file\.$"):
        yamlio.loads("[" + "a," * 1_600_000 + "a]", "many")
    assert len(yamlio.loads("[" + "'" + "a," * 1_600_000 + "']", "long")[0]) == 3_200_000
