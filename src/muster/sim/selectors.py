"""Label and field selectors: parsing and matching."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from muster.kube.api import Object
from muster.sim.api_status import StatusError, bad_request

Matcher = Callable[[Object], bool]

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{_NAME}")
_VALUE = re.compile(rf"(?:{_NAME})?")
_SET = re.compile(r"(?P<key>\S+?)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^=!<>\s]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^=!<>,\s]*)")


class Operator(Enum):
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"


@dataclass(frozen=True)
class Requirement:
    """One term of a label selector; a selector matches when all its terms do."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return self.key not in labels or labels[self.key] not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels


def parse_labels(selector: str) -> tuple[Requirement, ...]:
    """Parse `a=b,c!=d,e in (f,g),h,!i`. Raises StatusError 400 that names the wrong term."""
    if not selector.strip():
        return ()
    return tuple(_requirement(term.strip(), selector) for term in _split_terms(selector))


def _split_terms(selector: str) -> list[str]:
    terms, depth, start = [], 0, 0
    for at, character in enumerate(selector):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            terms.append(selector[start:at])
            start = at + 1
    return [*terms, selector[start:]]


def _requirement(term: str, selector: str) -> Requirement:
    if found := _SET.fullmatch(term):
        values = tuple(value.strip() for value in found["values"].split(","))
        operator = Operator.IN if found["op"] == "in" else Operator.NOT_IN
        return _checked(Requirement(found["key"], operator, values), selector)
    if found := _EQUALITY.fullmatch(term):
        operator = Operator.NOT_IN if found["op"] == "!=" else Operator.IN
        return _checked(Requirement(found["key"], operator, (found["value"],)), selector)
    if term.startswith("!"):
        return _checked(Requirement(term[1:].strip(), Operator.DOES_NOT_EXIST), selector)
    return _checked(Requirement(term, Operator.EXISTS), selector)


def _checked(requirement: Requirement, selector: str) -> Requirement:
    if not _KEY.fullmatch(requirement.key):
        raise _unparsable(selector, f"{requirement.key!r} is not a label key")
    for value in requirement.values:
        if len(value) > 63 or not _VALUE.fullmatch(value):
            raise _unparsable(selector, f"{value!r} is not a label value")
    return requirement


def _unparsable(selector: str, why: str) -> StatusError:
    return bad_request(f"unable to parse requirement in {selector!r}: {why}")


def label_matcher(selector: str) -> Matcher | None:
    """A matcher over objects, or None when everything matches."""
    requirements = parse_labels(selector)
    if not requirements:
        return None
    return lambda obj: labels_match(requirements, obj["metadata"].get("labels") or {})


def labels_match(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    return all(requirement.matches(labels) for requirement in requirements)


def from_label_selector(selector: Mapping[str, Any] | None) -> tuple[Requirement, ...] | None:
    """Requirements of a `metav1.LabelSelector` object. None (nothing matches) for an absent selector."""
    if selector is None:
        return None
    found = [Requirement(key, Operator.IN, (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    operators = {
        "In": Operator.IN,
        "NotIn": Operator.NOT_IN,
        "Exists": Operator.EXISTS,
        "DoesNotExist": Operator.DOES_NOT_EXIST,
    }
    for term in selector.get("matchExpressions") or []:
        operator = operators.get(term.get("operator"))
        if operator is None:
            raise bad_request(f"{term.get('operator')!r} is not a valid label selector operator")
        found.append(Requirement(term.get("key", ""), operator, tuple(term.get("values") or ())))
    return tuple(found)


_ALIASES = {
    "regarding.": "involvedObject.",
    "reportingController": "reportingComponent",
}


_STORED_AT = {"source": "source.component", "status.successful": "status.succeeded"}
_ZERO_VALUES = {"unschedulable": "false", "hostNetwork": "false", "succeeded": "0"}


def field_matcher(selector: str, supported: tuple[str, ...]) -> Matcher | None:
    """A matcher for `metadata.name=x,spec.nodeName!=y`; None when everything matches.

    `supported` are the field labels of the kind besides metadata.name and metadata.namespace. Raises StatusError 400
    for any other.
    """
    if not selector.strip():
        return None
    terms: list[tuple[tuple[str, ...], bool, str]] = []
    for term in selector.split(","):
        found = _EQUALITY.fullmatch(term.strip())
        if not found:
            raise bad_request(f"invalid selector: {selector!r}; can't understand {term.strip()!r}")
        path = found["key"]
        if path not in ("metadata.name", "metadata.namespace") and path not in supported:
            raise bad_request(f"field label not supported: {path}")
        for alias, real in _ALIASES.items():
            if path.startswith(alias):
                path = real + path[len(alias) :]
        path = _STORED_AT.get(path, path)
        terms.append((tuple(path.split(".")), found["op"] != "!=", found["value"]))
    return lambda obj: all((_field(obj, path) == value) is wanted for path, wanted, value in terms)


def _field(obj: Object, path: tuple[str, ...]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return _ZERO_VALUES.get(path[-1], "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def both(first: Matcher | None, second: Matcher | None) -> Matcher | None:
    """Matches what both match; None stands for everything."""
    if first is None or second is None:
        return first or second
    return lambda obj: first(obj) and second(obj)
