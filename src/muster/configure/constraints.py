"""Constraints by name. They inherit and intersect: a child can only narrow what its parents demand.

A constraint holds against a reading of the same name (`kubernetes.version`, `os.id`) or against the figure of a test
(`nccl-all-reduce-bw`, GB/s of bus bandwidth).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import assert_never

import msgspec

from muster.configure.versions import Range, Scheme
from muster.errors import BadInputError


class Kind(StrEnum):
    """How the text of a constraint reads."""

    KUBERNETES = "kubernetes"
    CHART = "chart"
    DRIVER = "driver"
    KERNEL = "kernel"
    NUMBER = "number"
    TEXT = "text"
    """Equal to the text."""
    LABEL = "label"
    """Every node has the label (`key=value`) or has it not (`!key`)."""


KINDS: Mapping[str, Kind] = {
    "kubernetes.version": Kind.KUBERNETES,
    "gpu-operator.version": Kind.CHART,
    "driver.version": Kind.DRIVER,
    "kernel.version": Kind.KERNEL,
    "os.id": Kind.TEXT,
    "os.version_id": Kind.TEXT,
    "aks.gpu-pools.gpu-driver": Kind.TEXT,
    "nodes.gpu.label": Kind.LABEL,
    "nccl-all-reduce-bw": Kind.NUMBER,
    "nccl-all-reduce-bw-net": Kind.NUMBER,
    "nccl-all-reduce-bw-nvls": Kind.NUMBER,
    "inference-throughput": Kind.NUMBER,
    "inference-ttft-p99": Kind.NUMBER,
    "inference-concurrency-per-gpu": Kind.TEXT,
    "inference-model": Kind.TEXT,
    "inference-routing-mode": Kind.TEXT,
}
"""Every name that a catalogue may constrain. NCCL figures are GB/s of bus bandwidth, throughput is tokens/s, the time
to the first token (99th percentile) is ms."""

NODE_NAMES = frozenset(
    {"aks.gpu-pools.gpu-driver", "driver.version", "kernel.version", "nodes.gpu.label", "os.id", "os.version_id"}
)
"""Constraints on each GPU node. All others hold for the cluster or for a test of it."""

UNITS: Mapping[str, str] = {
    "nccl-all-reduce-bw": "GB/s busbw",
    "nccl-all-reduce-bw-net": "GB/s busbw",
    "nccl-all-reduce-bw-nvls": "GB/s busbw",
    "inference-throughput": "tokens/s",
    "inference-ttft-p99": "ms",
}


class Demand(msgspec.Struct, frozen=True):
    """One constraint as somebody wrote it, and who."""

    text: str
    source: str


class Constraint(msgspec.Struct, frozen=True):
    """A name, what holds after all demands, and the demands in the order in which they were made."""

    name: str
    value: str
    demands: tuple[Demand, ...]


def kind_of(name: str) -> Kind:
    """The kind of the constraint `name`. Raises BadInputError with a suggestion for an unknown name."""
    if name not in KINDS:
        import difflib

        close = difflib.get_close_matches(name, KINDS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known names: {', '.join(KINDS)}."
        raise BadInputError(f"No constraint is named {name[:80]!r}; {hint}")
    return KINDS[name]


def scheme_of(kind: Kind) -> Scheme | None:
    """The version scheme of a kind, or None when its values are not ordered."""
    match kind:
        case Kind.KUBERNETES | Kind.CHART | Kind.DRIVER | Kind.KERNEL | Kind.NUMBER:
            return Scheme(kind.value)
        case Kind.TEXT | Kind.LABEL:
            return None
        case _:
            assert_never(kind)


def demand(name: str, text: str, source: str) -> Constraint:
    """A constraint with one demand, in canonical form. Raises BadInputError for a bad name or text."""
    kind = kind_of(name)
    scheme = scheme_of(kind)
    if scheme is not None:
        wanted = Range.parse(text, scheme)
        if wanted.is_empty():
            raise BadInputError(f"No version satisfies {name} {text[:120]!r} ({source}); correct the range.")
        value = str(wanted)
    else:
        value = _labels(text, source) if kind is Kind.LABEL else _text(name, text, source)
    return Constraint(name, value, (Demand(text, source),))


def _text(name: str, text: str, source: str) -> str:
    """One plain value. Raises BadInputError for what looks like a range, which no reading would ever equal."""
    if not text.strip() or re.search(r"^\s*[<>=!~^]|\|\||,", text):
        raise BadInputError(
            f"{name} {text[:80]!r} ({source}): {name} is compared as text; write the one value that it must have."
        )
    return text.strip()


def _labels(text: str, source: str) -> str:
    """The terms of a constraint on labels, each once, sorted. Raises BadInputError for a term that is none."""
    terms = sorted(set(text.split()))
    for term in terms:
        key, equals, _ = term.partition("=")
        if not key.removeprefix("!") or term.startswith("!") == bool(equals):
            raise BadInputError(f"{term[:80]!r} ({source}) is no demand on a label; write key=value or !key.")
    by_key = {term.removeprefix("!").partition("=")[0]: term for term in terms}
    if len(by_key) < len(terms):
        raise BadInputError(f"No node can have the labels {text[:120]!r} ({source}); drop one of them.")
    return " ".join(terms)


def narrow(current: Constraint | None, name: str, text: str, source: str) -> Constraint:
    """`current` and the new demand both hold. Raises BadInputError showing both sides when nothing satisfies both."""
    new = demand(name, text, source)
    if current is None:
        return new
    demands = (
        current.demands if new.demands[0].text in [d.text for d in current.demands] else current.demands + new.demands
    )
    return Constraint(name, _both(current, new), demands)


def _both(current: Constraint, new: Constraint) -> str:
    kind = kind_of(current.name)
    scheme = scheme_of(kind)
    if scheme is not None:
        both = Range.parse(current.value, scheme).intersection(Range.parse(new.value, scheme))
        if both.is_empty():
            raise _conflict(current, new)
        return str(both)
    if kind is Kind.TEXT:
        if current.value != new.value:
            raise _conflict(current, new)
        return current.value
    terms = sorted({*current.value.split(" "), *new.value.split(" ")})
    keys: dict[str, str] = {}
    for term in terms:
        key = term.removeprefix("!").partition("=")[0]
        if keys.setdefault(key, term) != term:
            raise _conflict(current, new)
    return " ".join(terms)


def label_holds(term: str, labels: Mapping[str, str]) -> bool:
    """Whether one term of a label constraint (`key`, `key=value`, or either after `!`) holds for a node's labels."""
    key, equals, value = term.removeprefix("!").partition("=")
    has = labels.get(key) == value if equals else key in labels
    return has != term.startswith("!")


def _conflict(current: Constraint, new: Constraint) -> BadInputError:
    ours = " and ".join(f"{d.text!r} ({d.source})" for d in current.demands)
    return BadInputError(
        f"Nothing satisfies {current.name} {ours} and {new.demands[0].text!r} ({new.demands[0].source}); "
        "change the criteria or the catalogue layer that demands it."
    )
