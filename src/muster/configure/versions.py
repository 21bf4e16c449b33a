"""One version algebra: Kubernetes, charts, drivers, kernels and plain numbers; ranges with AND, OR and intersection.

The order is total. Trailing zeros do not count (`1.30` is `1.30.0`), pre-releases come before their release as SemVer
says, and vendor builds (`-eks-3025e55`, `-gke.1318000`, `-1028-aws`) come after the bare version, ordered as packages
are: runs of digits are numbers, and `503.22.1.el9_5` comes after `503.el9`. A bound without a build stands for all
builds of that version, so `<= 1.34.3` admits `1.34.3-gke.1318000` and `> 1.34.3` does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import assert_never

import msgspec

from muster.errors import BadInputError

Identifier = tuple[int, int, str]
"""Numeric identifiers (0, n, "") sort before words (1, 0, word), as SemVer says; those of builds (3, n, "") after."""
Key = tuple[tuple[int, ...], tuple[Identifier, ...], tuple[Identifier, ...], str]
Cut = tuple[tuple[int, ...], tuple[Identifier, ...], tuple[Identifier, ...], str, int]
"""A place between versions: just before (0) or just after (1) the version that the first four entries name."""

_LOWEST: Cut = ((), (), (), "", -1)
_HIGHEST: Cut = ((2**64,), (), (), "", 0)
_RELEASED: tuple[Identifier, ...] = ((2, 0, ""),)
_ALL_BUILDS: tuple[Identifier, ...] = ((9, 0, ""),)
_FRACTION_DIGITS = 9
_SHAPE = re.compile(r"[vV]?(\d{1,18}(?:\.\d{1,18}){0,5})([-+~][0-9A-Za-z.+~_-]{0,100})?", re.ASCII)
_PRE_WORD = re.compile(r"(?:alpha|beta|rc|pre|preview|dev)\d*", re.IGNORECASE | re.ASCII)
_TERM = re.compile(r"\s*(>=|<=|!=|==|=|>|<|~|\^)?\s*([^\s,<>=!|~^]+(?:[-+~][^\s,<>=!|]*)?)\s*,?")
_WILD = re.compile(r"(?!(?:[^.]*\.){3})[vV]?((?:\d{1,18}\.){0,2})[xX*](?:\.[xX*]){0,2}", re.ASCII)


class Scheme(StrEnum):
    """How the part after the dots reads: as a pre-release or as a vendor's build."""

    KUBERNETES = "kubernetes"
    CHART = "chart"
    DRIVER = "driver"
    KERNEL = "kernel"
    NUMBER = "number"
    """A plain decimal number; `744.8` is more than `744.71`."""


class Version(msgspec.Struct, frozen=True, order=True):
    """A version of one scheme. Equality and order ignore spelling (`v1.30` equals `1.30.0`)."""

    scheme: Scheme
    key: Key

    @classmethod
    def parse(cls, text: str, scheme: Scheme) -> Version:
        """Read `text`. Raises BadInputError when it is no version."""
        match = _SHAPE.fullmatch(text.strip())
        if match is None or (scheme is Scheme.NUMBER and (match[2] or match[1].count(".") > 1)):
            raise BadInputError(f"{text[:80]!r} is not a {scheme} version; write for example {_EXAMPLES[scheme]}.")
        if scheme is Scheme.NUMBER:
            whole, _, fraction = match[1].partition(".")
            numbers = [int(whole), int(fraction[:_FRACTION_DIGITS].ljust(_FRACTION_DIGITS, "0"))]
        else:
            numbers = [int(part) for part in match[1].split(".")]
        while numbers and numbers[-1] == 0:
            numbers.pop()
        suffix = match[2] or ""
        pre, build = _read_suffix(suffix, scheme)
        return cls(scheme, (tuple(numbers), pre, build, suffix))

    def __str__(self) -> str:
        return _version_text(self.key, self.scheme)

    def before(self) -> Cut:
        return (*self.key, 0)

    def after(self) -> Cut:
        """Just after the version; a version without a build stands for all of its builds."""
        release, pre, build, suffix = self.key
        return (release, pre, build or _ALL_BUILDS, suffix, 1)


_EXAMPLES = {
    Scheme.KUBERNETES: "v1.33.5-eks-3025e55",
    Scheme.CHART: "v1.20.2",
    Scheme.DRIVER: "580.95.05",
    Scheme.KERNEL: "6.8.0-1028-aws",
    Scheme.NUMBER: "300",
}


def _identifiers(text: str, separators: str) -> tuple[Identifier, ...]:
    parts = [part for part in re.split(separators, text) if part]
    return tuple((0, int(part), "") if part.isdigit() and len(part) <= 18 else (1, 0, part) for part in parts)


def _build(text: str, scheme: Scheme) -> tuple[Identifier, ...]:
    """The identifiers of a vendor's build; SemVer gives builds of charts no order, any fixed one will do."""
    parts = re.findall(r"[0-9]{1,18}|[A-Za-z]+", text) if scheme is not Scheme.CHART else text.split(".")
    return tuple((3, int(part), "") if part.isdigit() and len(part) <= 18 else (1, 0, part) for part in parts if part)


def _read_suffix(suffix: str, scheme: Scheme) -> tuple[tuple[Identifier, ...], tuple[Identifier, ...]]:
    """Split what follows the numbers into (pre-release, build)."""
    head, _, plus = suffix.partition("+")
    # In SemVer a hyphen is part of an identifier; vendors separate the parts of a build with it.
    separators = r"\." if scheme is Scheme.CHART else r"[-.+~_]"
    head = head.removeprefix("-").removeprefix("~")
    identifiers = _identifiers(head, separators)
    if not identifiers:
        return _RELEASED, _build(plus, scheme)
    match scheme:
        case Scheme.CHART:
            is_pre = True
        case Scheme.KUBERNETES:
            # `-0` is how charts write "including pre-releases" in kubeVersion.
            is_pre = (
                all(kind == 0 for kind, _, _ in identifiers) or _PRE_WORD.fullmatch(identifiers[0][2]) is not None
            )
        case Scheme.DRIVER | Scheme.KERNEL | Scheme.NUMBER:
            is_pre = _PRE_WORD.fullmatch(identifiers[0][2]) is not None
        case _:
            assert_never(scheme)
    if is_pre:
        return identifiers, _build(plus, scheme)
    return _RELEASED, _build(head, scheme) + _build(plus, scheme)


def _version_text(key: Key, scheme: Scheme) -> str:
    release, _, _, suffix = key
    numbers = list(release)
    if scheme is Scheme.NUMBER:
        whole, fraction = (numbers + [0, 0])[:2]
        decimals = f"{fraction:0{_FRACTION_DIGITS}d}".rstrip("0")
        return f"{whole}.{decimals}" if decimals else str(whole)
    shortest = 3 if suffix or scheme is Scheme.CHART else 2
    numbers += [0] * (shortest - len(numbers))
    if scheme is Scheme.DRIVER:
        # NVIDIA writes the third and fourth part with two digits: 580.95.05.01.
        return ".".join(str(n) if at < 2 else f"{n:02d}" for at, n in enumerate(numbers)) + suffix
    return ".".join(map(str, numbers)) + suffix


class Range(msgspec.Struct, frozen=True):
    """A set of versions as sorted, disjoint spans. Build it with `parse`, `any` or the set operations."""

    scheme: Scheme
    spans: tuple[tuple[Cut, Cut], ...]

    @classmethod
    def any(cls, scheme: Scheme) -> Range:
        return cls(scheme, ((_LOWEST, _HIGHEST),))

    @classmethod
    def parse(cls, text: str, scheme: Scheme) -> Range:
        """Read `>= 1.34.3 < 1.35 || >= 1.36`: a space or comma is AND, `||` is OR, no operator means equal.

        For Kubernetes and charts also `~1.30` and `1.30.x` (1.30 with any patch; `1.x.x` is `1.x`), `^1.2` (up to the
        next major; up to the next minor below 1.0) and `*`, as Helm reads them; their upper ends leave pre-releases
        out. In one point Helm differs: `1.30` as a bound is 1.30.0 here, and every patch of 1.30 to Helm.
        Raises BadInputError when `text` is no range.
        """
        return _parse_range(text, scheme)

    def contains(self, version: Version) -> bool:
        at = version.before()
        return any(low <= at < high for low, high in self.spans)

    def is_empty(self) -> bool:
        return not self.spans

    def intersection(self, other: Range) -> Range:
        """Versions in both. Commutative, associative, idempotent; never holds what one side lacks."""
        pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in self.spans for b in other.spans)
        return Range(self.scheme, _normalise(pairs))

    def union(self, other: Range) -> Range:
        return Range(self.scheme, _normalise([*self.spans, *other.spans]))

    def floor(self) -> str:
        """The lowest bound as text (`>= 1.34`), or `any` when there is none."""
        if not self.spans:
            return "none"
        low = self.spans[0][0]
        return _span_text(low, _HIGHEST, self.scheme)

    def __str__(self) -> str:
        if not self.spans:
            return "none"
        return " || ".join(_span_text(low, high, self.scheme) for low, high in self.spans)


@lru_cache(maxsize=1024)
def _parse_range(text: str, scheme: Scheme) -> Range:
    if text.strip() == "any":
        return Range.any(scheme)
    result = Range(scheme, ())
    if text.strip() == "none":
        return result
    for alternative in text.split("||"):
        result = result.union(_parse_alternative(alternative, text, scheme))
    return result


def _normalise(spans: Iterable[tuple[Cut, Cut]]) -> tuple[tuple[Cut, Cut], ...]:
    merged: list[tuple[Cut, Cut]] = []
    for low, high in sorted(span for span in spans if span[0] < span[1]):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def _parse_alternative(alternative: str, whole: str, scheme: Scheme) -> Range:
    result = Range.any(scheme)
    position, found = 0, 0
    while match := _TERM.match(alternative, position):
        position, found = match.end(), found + 1
        result = result.intersection(_term_range(match[1] or "==", match[2], whole, scheme))
    if not found or alternative[position:].strip():
        raise BadInputError(f"{whole[:120]!r} is not a version range; write for example '>= 1.34 < 1.36'.")
    return result


def _term_range(operator: str, text: str, whole: str, scheme: Scheme) -> Range:
    wild = _WILD.fullmatch(text)
    if not wild and operator not in ("~", "^"):
        return _term(operator, Version.parse(text, scheme))
    if scheme not in (Scheme.KUBERNETES, Scheme.CHART) or (wild and operator not in ("=", "==")):
        raise BadInputError(
            f"{whole[:120]!r} is not a range of {scheme} versions; write its ends out, for example '>= 1.34 < 1.36'."
        )
    if wild:
        text = wild[1].rstrip(".")
        if not text:
            return Range.any(scheme)
    start = Version.parse(text, scheme)
    given = len(re.split(r"[-+~]", text)[0].split("."))
    numbers = [*start.key[0], 0, 0, 0][:3]
    if operator == "^":
        depth = next((at + 1 for at in range(3) if numbers[at]), given)
    else:
        depth = min(given, 2)
    return _term(">=", start).intersection(_term("<", _next(numbers, min(depth, 3), scheme)))


def _next(numbers: list[int], depth: int, scheme: Scheme) -> Version:
    """The lowest pre-release of the version after all that share the first `depth` numbers."""
    raised = [*numbers[: depth - 1], numbers[depth - 1] + 1, 0, 0][:3]
    return Version.parse(".".join(map(str, raised)) + "-0", scheme)


def _term(operator: str, version: Version) -> Range:
    before, after = version.before(), version.after()
    spans = {
        ">=": [(before, _HIGHEST)],
        ">": [(after, _HIGHEST)],
        "<=": [(_LOWEST, after)],
        "<": [(_LOWEST, before)],
        "==": [(before, after)],
        "=": [(before, after)],
        "!=": [(_LOWEST, before), (after, _HIGHEST)],
    }[operator]
    return Range(version.scheme, _normalise(spans))


def _span_text(low: Cut, high: Cut, scheme: Scheme) -> str:
    if low == _LOWEST and high == _HIGHEST:
        return "any"
    low_text, high_text = (_version_text(cut[:4], scheme) for cut in (low, high))
    if low[4] == 0 and high[4] == 1 and low[:2] == high[:2] and low[3] == high[3]:
        return f"== {low_text}"
    parts = []
    if low != _LOWEST:
        parts.append(f"{'>' if low[4] else '>='} {low_text}")
    if high != _HIGHEST:
        parts.append(f"{'<=' if high[4] else '<'} {high_text}")
    return " ".join(parts)
