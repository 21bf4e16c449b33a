"""The version algebra: a total order, and ranges that form a lattice and never widen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
        ("1.34.0-gke.1", "1.34.1", K),
        ("v1.30.4-0", "v1.30.4-beta.0", K),
        ("1.33.5+rke2r1", "1.33.6", K),
        ("1.0.0-alpha", "1.0.0-alpha.1", Scheme.CHART),
        ("1.0.0-alpha.1", "1.0.0-alpha.beta", Scheme.CHART),
        ("1.0.0-alpha.beta", "1.0.0-beta", Scheme.CHART),
        ("1.0.0-beta.2", "1.0.0-beta.11", Scheme.CHART),
        ("1.0.0-beta-11", "1.0.0-beta-2", Scheme.CHART),
        ("1.0.0-rc.1", "1.0.0", Scheme.CHART),
        ("1.0.0", "1.0.0+build.1", Scheme.CHART),
        ("570.211.01", "580.65.06", Scheme.DRIVER),
        ("580.95.05.01", "580.95.05.02", Scheme.DRIVER),
        ("5.14.0-503.11.1.el9_5.x86_64", "5.14.0-570.12.1.el9_6.x86_64", Scheme.KERNEL),
        ("6.6.87+", "6.6.88", Scheme.KERNEL),
        ("6.8.0-1028-aws", "6.8.0-1030-aws", Scheme.KERNEL),
        ("6.12.0-talos", "6.12.1", Scheme.KERNEL),
        # As packages order: a further number is newer than the name of the distribution, runs of digits are numbers.
        ("5.14.0-503.el9", "5.14.0-503.22.1.el9_5.x86_64", Scheme.KERNEL),
        ("5.14.0-570.el9_9.x86_64", "5.14.0-570.el9_10.x86_64", Scheme.KERNEL),
        ("4.18.0-553.el8_10.x86_64", "4.18.0-553.16.1.el8_10.x86_64", Scheme.KERNEL),
        ("v1.33.5+rke2r2", "v1.33.5+rke2r10", K),
        ("v1.33.5+k3s2", "v1.33.5+k3s11", K),
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
        # A floor of two numbers with a build stands for the first patch of that minor.
        (">= 1.34-gke.1318000", ["1.34.0-gke.1318000", "1.34.1-gke.1", "1.35"], ["1.34.0-gke.999", "1.34.0"]),
        (">=1.32.0-0", ["1.32.0-alpha.1", "1.32.0", "v1.32.9-eks-1"], ["1.31.9-gke.5"]),
        (">=1.30<1.32", ["1.30.0", "1.31.9-gke.5"], ["1.32.0", "1.29"]),
        (" >=  v1.30 ,  < v1.32 ", ["1.30", "1.31.9"], ["1.32"]),
        ("~1.30", ["1.30.0", "1.30.9-gke.4"], ["1.31.0", "1.31.0-rc.1", "1.29.9", "1.30.0-rc.1"]),
        ("1.30.x", ["1.30.0", "1.30.9"], ["1.31.0-alpha.1", "1.29.9"]),
        ("~1.30.4", ["1.30.4", "1.30.9"], ["1.30.3", "1.31"]),
        ("~1", ["1.0", "1.99"], ["2.0", "2.0.0-rc.1"]),
        ("^1.30", ["1.30", "1.99.4"], ["2.0", "2.0.0-rc.1", "1.29"]),
        ("^0.2.3", ["0.2.3", "0.2.9"], ["0.3.0", "0.2.2"]),
        ("^0.0.3", ["0.0.3", "0.0.3-gke.1"], ["0.0.4"]),
        ("^0", ["0.0.1", "0.9"], ["1.0"]),
        ("1.x || ^3", ["1.5", "3.1"], ["2.0", "4.0"]),
        ("1.x.x", ["1.0", "1.30.4"], ["2.0", "2.0.0-rc.1"]),
        ("1.30.*", ["1.30.4"], ["1.31"]),
        ("x.x.x", ["0.0.1-0", "99"], []),
        ("*", ["0.0.1-0", "99"], []),
        ("none", [], ["1.0"]),
    ],
)
def test_ranges(text: str, inside: list[str], outside: list[str]) -> None:
    wanted = Range.parse(text, K)
    assert [v for v in inside if not wanted.contains(version(v))] == []
    assert [v for v in outside if wanted.contains(version(v))] == []


@pytest.mark.parametrize(
    "text", ["", ">=", "1.2 || ", "abc", ">= 1.x", "1" * 200, "1.2.3.4.5.6.7", "=> 1.2", "1.2 &&", "1.2 - 1.4",
     "> = 1.2", ">= 1.2.x", "~1.x", "1.2.3.x", "1.2.x.x", "x.x.x.x",
     "1.x.2", "x.1", "~", "^", "~~1.2", "latest", ">= \u0661.2", ", >= 1.2"]
)  # fmt: skip
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        Range.parse(text, K)
    assert "write" in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("scheme", [Scheme.DRIVER, Scheme.KERNEL, Scheme.NUMBER])
@pytest.mark.parametrize("text", ["~1.30", "^1.2", "1.30.x"])
def test_abbreviations_of_helm_are_for_kubernetes_and_charts_only(text: str, scheme: Scheme) -> None:
    with pytest.raises(BadInputError, match="write its ends out"):
        Range.parse(text, scheme)


SUFFIXES = {
    K: ["", "-0", "-rc.1", "-alpha.2", "-gke.1", "-gke.2", "-eks-3025e55", "+rke2r1", "-rc.1+k3s1"],
    Scheme.CHART: ["", "-0", "-rc.1", "-rc.2", "-alpha", "-alpha-1", "-alpha.beta", "+1", "-rc.1+b"],
    Scheme.DRIVER: ["", "-beta", "-open"],
    Scheme.KERNEL: ["", "-1028-aws", "-503.el9", "-rc3", "-talos", "+"],
    Scheme.NUMBER: [""],
}
schemes = st.sampled_from(list(Scheme))


def texts(scheme: Scheme) -> st.SearchStrategy[str]:
    longest = 2 if scheme is Scheme.NUMBER else 4
    parts = st.lists(st.integers(0, 3), min_size=1, max_size=longest)
    prefix = st.sampled_from(["", "v"])
    suffixes = st.sampled_from(SUFFIXES[scheme])
    return st.builds(lambda v, p, s: v + ".".join(map(str, p)) + s, prefix, parts, suffixes)


def versions(scheme: Scheme) -> st.SearchStrategy[Version]:
    return texts(scheme).map(lambda text: version(text, scheme))


def ranges(scheme: Scheme) -> st.SearchStrategy[Range]:
    operators = st.sampled_from([">=", ">", "<=", "<", "==", "!="])
    terms = st.builds(lambda operator, text: f"{operator} {text}", operators, texts(scheme))
    alternatives = st.lists(terms, min_size=1, max_size=3).map(" ".join)
    return st.lists(alternatives, min_size=1, max_size=3).map(lambda some: Range.parse(" || ".join(some), scheme))


@st.composite
def of_one_scheme(draw: st.DrawFn, *makers: Callable[[Scheme], st.SearchStrategy[Any]]) -> tuple[Any, ...]:
    scheme = draw(schemes)
    return tuple(draw(make(scheme)) for make in makers)


@given(of_one_scheme(versions, versions, versions))
def test_the_order_is_total(case: tuple[Version, Version, Version]) -> None:
    a, b, c = case
    assert (a < b) + (a == b) + (b < a) == 1
    if a <= b and b <= c:
        assert a <= c
    assert (a == b) == (not a < b and not b < a)
    if a == b:
        assert hash(a) == hash(b)


@given(of_one_scheme(ranges, ranges, ranges))
def test_intersection_is_a_lattice_operation(case: tuple[Range, Range, Range]) -> None:
    a, b, c = case
    assert a.intersection(b) == b.intersection(a)
    assert a.intersection(b).intersection(c) == a.intersection(b.intersection(c))
    assert a.intersection(a) == a
    assert a.intersection(Range.any(a.scheme)) == a


@given(of_one_scheme(ranges, ranges, versions))
def test_intersection_never_widens_and_loses_nothing(case: tuple[Range, Range, Version]) -> None:
    a, b, v = case
    assert a.intersection(b).contains(v) == (a.contains(v) and b.contains(v))
    assert a.union(b).contains(v) == (a.contains(v) or b.contains(v))


@given(of_one_scheme(ranges))
def test_text_round_trip(case: tuple[Range]) -> None:
    (a,) = case
    assert Range.parse(str(a), a.scheme) == a


@given(of_one_scheme(versions))
def test_a_version_reads_back_from_its_text(case: tuple[Version]) -> None:
    (a,) = case
    assert Version.parse(str(a), a.scheme) == a
    assert Range.parse(f"== {a}", a.scheme).contains(a)


@given(st.data())
def test_operators_complement_each_other(data: st.DataObject) -> None:
    scheme = data.draw(schemes)
    text = data.draw(texts(scheme))
    for operator, opposite in ((">=", "<"), (">", "<="), ("==", "!=")):
        one, other = Range.parse(f"{operator} {text}", scheme), Range.parse(f"{opposite} {text}", scheme)
        assert one.intersection(other).is_empty()
        assert one.union(other) == Range.any(scheme)


@given(st.sampled_from([K, Scheme.CHART]), st.integers(0, 3), st.integers(0, 3), st.sampled_from(["~", "^"]))
def test_abbreviations_start_where_they_say(scheme: Scheme, major: int, minor: int, operator: str) -> None:
    wanted = Range.parse(f"{operator}{major}.{minor}", scheme)
    assert wanted.contains(version(f"{major}.{minor}.0", scheme))
    assert wanted.contains(version(f"{major}.{minor}.9", scheme))
    assert not wanted.contains(version(f"{major + 1}.0.0-alpha.1", scheme))
    assert wanted.intersection(Range.parse(f"{major}.{minor}.x", scheme)) == Range.parse(f"{major}.{minor}.x", scheme)


@given(st.text(max_size=20))
def test_any_text_is_a_range_or_refused(text: str) -> None:
    for scheme in Scheme:
        try:
            found = Range.parse(text, scheme)
        except BadInputError as error:
            said = str(error)
        else:
            said = ""
            assert Range.parse(str(found), scheme) == found
        assert "\n" not in said
