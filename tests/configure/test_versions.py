"""The version algebra: a total order, and ranges that form a lattice and never widen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.versions import Range, Scheme, Version
from muster.errors import BadInputError

K = Scheme.KUBERNETES


def version(text: str, scheme: Scheme = K) -> Version:
    return Version.parse(text, scheme)


@pytest.mark.parametrize(
    ("low", "high", "scheme"),
    [
        ("1.30", "1.30.5", K),
        ("1.34.3", "1.34.3-gke.1318000", K),
        ("1.34.3-gke.999", "1.34.3-gke.1318000", K),
        ("v1.33.5-eks-3025e55", "v1.33.6-eks-1", K),
        ("1.34.0-alpha.2", "1.34.0-rc.1", K),
        ("1.34.0-rc.1", "1.34.0", K),
        ("1.32.0-0", "1.32.0-alpha.1", K),
        ("v1.33.5", "v1.33.5+rke2r1", K),
        ("1.0.0-rc1", "1.0.0", Scheme.CHART),
        ("v0.1.0-alpha.8", "v0.1.0-alpha.12", Scheme.CHART),
        ("580.95.05", "580.95.05.01", Scheme.DRIVER),
        ("580.95.05.01", "580.173.02", Scheme.DRIVER),
        ("6.8.0", "6.8.0-1028-aws", Scheme.KERNEL),
        ("6.8.0-999-aws", "6.8.0-1028-aws", Scheme.KERNEL),
        ("5.14.0-503.el9", "6.1", Scheme.KERNEL),
        ("7.0.0-rc3", "7.0", Scheme.KERNEL),
        ("744.71", "744.8", Scheme.NUMBER),
    ],
)
def test_order(low: str, high: str, scheme: Scheme) -> None:
    assert version(low, scheme) < version(high, scheme)
    assert not version(high, scheme) < version(low, scheme)


def test_spelling_does_not_count() -> None:
    assert version("v1.30") == version("1.30.0")
    assert hash(version("v1.30")) == hash(version("1.30.0"))
    assert str(version("580.95.05.01", Scheme.DRIVER)) == "580.95.05.01"


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("> 1.30", ["1.30.5", "1.31"], ["1.30", "1.30.0-gke.5", "1.29"]),
        ("== 1.30", ["1.30.0", "1.30.0-gke.1"], ["1.30.5"]),
        ("!= 1.30", ["1.30.5"], ["1.30.0", "1.30.0-gke.1"]),
        (">= 1.34", ["v1.34.3-eks-3025e55", "1.34.0-gke.1"], ["1.34.0-rc.1", "v1.33.5-eks-3025e55"]),
        ("<= 1.34.3", ["1.34.3-gke.1318000"], ["1.34.4"]),
        (
            ">= 1.34.3-gke.1318000 < 1.35 || >= 1.35.0-gke.2745000",
            ["1.34.3-gke.1318000", "1.34.4", "1.35.0-gke.2745000", "1.36"],
            ["1.34.3", "1.34.3-gke.1317999", "1.35.0", "1.35.0-gke.1"],
        ),
    ],
)
def test_ranges(text: str, inside: list[str], outside: list[str]) -> None:
    wanted = Range.parse(text, K)
    assert [v for v in inside if not wanted.contains(version(v))] == []
    assert [v for v in outside if wanted.contains(version(v))] == []


@pytest.mark.parametrize(
    "text", ["", ">=", "1.2 || ", "abc", ">= 1.x", "1" * 200, "1.2.3.4.5.6.7", "=> 1.2", "1.2 &&"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        Range.parse(text, K)


numbers = st.integers(0, 3)
texts = st.builds(
    lambda parts, suffix: ".".join(map(str, parts)) + suffix,
    st.lists(numbers, min_size=1, max_size=4),
    st.sampled_from(["", "-0", "-rc.1", "-alpha.2", "-gke.1", "-gke.2", "-eks-3025e55", "+rke2r1", "-rc.1+k3s1"]),
)
versions = texts.map(version)
terms = st.builds(lambda op, text: f"{op} {text}", st.sampled_from([">=", ">", "<=", "<", "==", "!="]), texts)
ranges = st.lists(st.lists(terms, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=3).map(
    lambda alternatives: Range.parse(" || ".join(alternatives), K)
)


@given(versions, versions, versions)
def test_total_order(a: Version, b: Version, c: Version) -> None:
    assert (a < b) + (a == b) + (b < a) == 1
    if a <= b and b <= c:
        assert a <= c


@given(ranges, ranges, ranges)
def test_intersection_is_a_lattice_operation(a: Range, b: Range, c: Range) -> None:
    assert a.intersection(b) == b.intersection(a)
    assert a.intersection(b).intersection(c) == a.intersection(b.intersection(c))
    assert a.intersection(a) == a
    assert a.intersection(Range.any(K)) == a


@given(ranges, ranges, versions)
def test_intersection_never_widens_and_loses_nothing(a: Range, b: Range, v: Version) -> None:
    assert a.intersection(b).contains(v) == (a.contains(v) and b.contains(v))
    assert a.union(b).contains(v) == (a.contains(v) or b.contains(v))


@given(ranges)
def test_text_round_trip(a: Range) -> None:
    assert Range.parse(str(a), K) == a


@given(texts)
def test_operators_complement_each_other(text: str) -> None:
    for operator, opposite in ((">=", "<"), (">", "<="), ("==", "!=")):
        one, other = Range.parse(f"{operator} {text}", K), Range.parse(f"{opposite} {text}", K)
        assert one.intersection(other).is_empty()
        assert one.union(other) == Range.any(K)
