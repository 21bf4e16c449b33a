"""Label and field selectors: matching, and which fields of a kind can be selected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from muster.kube.api import Object
from muster.sim.api_status import StatusError, bad_request
from muster.sim.selector_grammar import Operator, parse_field_terms, parse_label_terms

if TYPE_CHECKING:
    from muster.sim.api_kinds import Kind

Matcher = Callable[[Object], bool]


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
            case Operator.GREATER | Operator.LESS:
                return self._compares(labels.get(self.key, ""))
            case _:
                assert_never(self.operator)

    def _compares(self, text: str) -> bool:
        try:
            number, bound = int(text), int(self.values[0])
        except ValueError:
            return False
        return number > bound if self.operator is Operator.GREATER else number < bound


def parse_labels(selector: str) -> tuple[Requirement, ...]:
    """Parse `a=b,c!=d,e in (f,g),h,!i,j>1`. Raises StatusError 400 that says what is wrong."""
    return tuple(Requirement(term.key, term.operator, term.values) for term in parse_label_terms(selector))


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


_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_ALIASES = {
    **{f"regarding.{field}": f"involvedObject.{field}" for field in _REFERENCE},
    "reportingController": "reportingComponent",
    "status.successful": "status.succeeded",
}
"""Field labels whose place in the stored object has another name."""
_ZERO_VALUES = {"unschedulable": "false", "hostNetwork": "false", "succeeded": "0"}
_WITHOUT_NAMESPACE = ("Node", "Namespace")


def field_matcher(selector: str, kind: Kind) -> Matcher | None:
    """A matcher for `metadata.name=x,spec.nodeName!=y` on stored objects; None when everything matches.

    Raises StatusError 400 for a field label that the kind does not have.
    """
    terms = parse_field_terms(selector)
    if not terms:
        return None
    for term in terms:
        if not _supported(kind, term.path):
            raise _unsupported(kind, term.path)
    readers = [(_reader(term.path), term.equal, term.value) for term in terms]
    return lambda obj: all((read(obj) == value) is wanted for read, wanted, value in readers)


def _supported(kind: Kind, path: str) -> bool:
    if path == "metadata.name":
        return True
    if path == "metadata.namespace":
        # Custom resources and kinds with labels of their own know their scope; the others accept it all the same.
        return kind.namespaced or (kind.custom is None and kind.name not in _WITHOUT_NAMESPACE)
    if kind.custom is not None:
        return path in kind.custom.selectable_fields
    return path in kind.field_labels


def _unsupported(kind: Kind, path: str) -> StatusError:
    shown = path[:200]
    if kind.name == "Job":
        return bad_request(f'field label "{shown}" not supported for Job')
    if kind.field_labels or kind.custom is not None:
        return bad_request(f"field label not supported: {shown}")
    return bad_request(f'"{shown}" is not a known field selector: only "metadata.name", "metadata.namespace"')


def _reader(path: str) -> Callable[[Object], str]:
    if path == "source":
        # Of an event: who reported it, whichever of its two places says so.
        component, controller = _reader("source.component"), _reader("reportingComponent")
        return lambda obj: component(obj) or controller(obj)
    parts = tuple(_ALIASES.get(path, path).split("."))
    return lambda obj: _field(obj, parts)


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
