"""Values: paths, merge with kept nulls, texts of a flag."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import yamlio
from muster.configure.lint import lint_values
from muster.configure.values import (
    ABSENT,
    get,
    leaves,
    merge,
    parse_path,
    parse_value,
    path_text,
    put,
    same,
    whole_leaves,
)
from muster.errors import BadInputError

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
HOSTILE = [
    "yes", "y", "123", "1e3", "0o17", "0x1F", "12:30", "1_000", "~", "null", "=", "<<", "", " a", "a ", "a: b", "# x",
    "'", '"', "a\nb", "a\n", "\n", "- a", "{{ .Values.x }}", "${HOME}", "2024-01-01", "\t", "é", "\u2028", "%", "@x",
]  # fmt: skip


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_path_round_trip(keys: list[str]) -> None:
    assert parse_path(path_text(tuple(keys))) == tuple(keys)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a[x]", "[", "a]b"])
def test_malformed_paths(text: str) -> None:
    with pytest.raises(BadInputError):
        parse_path(text)


def test_dotted_keys_and_indices() -> None:
    values: dict[str, Any] = {"nodeSelector": {"nvidia.com/gpu": "x"}, "list": [{"name": "a"}]}
    assert get(values, parse_path(r"nodeSelector.nvidia\.com/gpu")) == "x"
    put(values, parse_path("list[0].name"), "b")
    put(values, parse_path("list[1]"), None)
    assert values["list"] == [{"name": "b"}, None]
    with pytest.raises(BadInputError, match="2 entries"):
        put(values, parse_path("list[9]"), 1)
    with pytest.raises(BadInputError):
        put(values, parse_path("list.name"), 1)


def test_merge_keeps_nulls_and_empty_lists_and_copies() -> None:
    patch: dict[str, Any] = {"a": None, "b": [], "c": {"d": {"e": 1}}}
    target: dict[str, Any] = {"a": {"x": 1}, "b": [1], "c": {"d": 2, "f": 3}}
    merge(target, patch)
    assert target == {"a": None, "b": [], "c": {"d": {"e": 1}, "f": 3}}
    patch["c"]["d"]["e"] = 99
    assert target["c"]["d"]["e"] == 1


@given(st.dictionaries(st.text(), trees, max_size=3), st.dictionaries(st.text(), trees, max_size=3))
def test_merging_twice_changes_nothing(target: dict[str, Any], patch: dict[str, Any]) -> None:
    merge(target, patch)
    once = yamlio.dumps(target)
    merge(target, patch)
    assert yamlio.dumps(target) == once
    assert all(
        get(target, path) is not ABSENT for path, _ in leaves(patch) if not any(p.startswith("[") for p in path)
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("3", 3),
        ("null", None),
        ("[]", []),
        ('"3"', "3"),
        ("yes", "yes"),
        ("NaN", "NaN"),
        ("0.5", 0.5),
        ('"1.30"', "1.30"),
        ("v1.30", "v1.30"),
        ("a,b", "a,b"),
    ],
)
def test_values_of_flags(text: str, value: Any) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize("text", ["1.30", "1.0", "1e3", "-0", "12345678901234567890", "0.10", "1e999"])
def test_a_number_that_would_change_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        parse_value(text)


def test_put_does_not_drop_settings() -> None:
    values: dict[str, Any] = {"driver": {"version": "1"}, "gone": None}
    for path, value in (("driver", 1), ("driver", []), ("driver.version.x", 1)):
        with pytest.raises(BadInputError):
            put(values, parse_path(path), value)
    assert values == {"driver": {"version": "1"}, "gone": None}
    put(values, parse_path("gone.a"), 1)
    put(values, parse_path("driver"), None)
    assert values == {"driver": None, "gone": {"a": 1}}


@given(trees)
def test_yaml_round_trip(tree: Any) -> None:
    # Lone surrogates are no text that a file can hold.
    try:
        repr(tree).encode()
        text = yamlio.dumps(tree)
    except UnicodeEncodeError:
        return
    assert text.isascii()
    assert yamlio.loads(text, "test") == tree


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_quoted(text: str) -> None:
    written = yamlio.dumps({text: [text]})
    assert yamlio.loads(written, "test") == {text: [text]}
    assert f"- {text}\n" not in written


@pytest.mark.parametrize(
    ("values", "bad"),
    [
        ({"grafana": {"adminPassword": "hunter2"}}, True),
        ({"auth": [{"token": "abc"}]}, True),
        ({"tls": "-----BEGIN RSA PRIVATE KEY-----"}, True),
        ({"image": {"tag": "latest"}}, True),
        ({"image": "example.com/a/b:latest"}, True),
        ({"admin": {"existingSecret": "grafana-admin", "passwordKey": "admin-password"}}, False),
        ({"adminPassword": ""}, False),
        ({"passwordSecretRef": {"name": "x"}}, False),
        ({"image": {"tag": "v1.2.3"}}, False),
    ],
)
def test_lint(values: dict[str, Any], bad: bool) -> None:
    if bad:
        with pytest.raises(BadInputError, match="some-component:"):
            lint_values("some-component", values, "test")
    else:
        assert lint_values("some-component", values, "test") is None  # type: ignore[func-returns-value]


maps = st.dictionaries(st.text(min_size=1), trees, max_size=3)


@given(maps, maps)
def test_laws_of_merging(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """The patch holds afterwards, what it does not touch stays, and nothing is shared or recorded wrongly."""
    before = yamlio.dumps(target), yamlio.dumps(patch)
    merged = copy.deepcopy(target)
    recorded: dict[tuple[str, ...], Any] = {}
    merge(merged, patch, lambda path, value, _present: recorded.__setitem__(path, value))
    assert before == (yamlio.dumps(target), yamlio.dumps(patch))
    for path, value in whole_leaves(patch):
        if value != {}:
            assert same(get(merged, path), value)
    for path, value in recorded.items():
        assert value == {} or same(get(merged, path), value)
    touched = [path for path, _ in whole_leaves(patch)]
    for path, value in whole_leaves(target):
        if not any(path[: len(t)] == t or t[: len(path)] == path for t in touched):
            assert same(get(merged, path), value)
    alone: dict[str, Any] = {}
    merge(alone, patch)
    assert same(alone, patch)
    nothing = copy.deepcopy(target)
    merge(nothing, {})
    assert same(nothing, target)


@given(maps, st.lists(st.text(min_size=1).filter(lambda t: not t.startswith("[")), min_size=1, max_size=3), scalars)
def test_what_was_put_is_there(values: dict[str, Any], keys: list[str], value: Any) -> None:
    path = tuple(keys)
    before = copy.deepcopy(values)
    try:
        put(values, path, value)
    except BadInputError:
        return
    assert same(get(values, path), value)
    for other, kept in whole_leaves(before):
        if not (other[: len(path)] == path or path[: len(other)] == other):
            assert same(get(values, other), kept)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, True, False),
        (1, 1.0, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ([1, 2], [2, 1], False),
        (None, ABSENT, False),
        (ABSENT, ABSENT, True),
        ("1", 1, False),
    ],
)
def test_same(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other) is equal
    assert copy.deepcopy(ABSENT) is ABSENT
