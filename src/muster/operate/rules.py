"""CEL expressions of policies: compiled once, type-checked, bounded, evaluated over plain values.

The variables are declared one by one with their types, so that a misspelt field is an error when the expression is
read and not a rule that silently never matches. CEL has no loops of unknown length; its `matches` runs in linear
time.

Each place in a policy has a vocabulary of its own. An answer depends on the variables that the expression names and
on nothing else, so answers are kept by content: the same fault on ten thousand nodes is judged once.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

from muster.operate.patterns.history import History, bursts_of
from muster.resources.fault import Burst, Entity, EntityKind, Fault
from muster.resources.topology import domain_of, pool_of

MAX_EXPRESSION_CHARS = 4096
MAX_MESSAGE_CHARS = 1024
UNKNOWN_NUMBER = -1
"""Value of `fault.entity.index`, `.link` and `.port` when the source does not tell; text fields are then empty."""
REGISTERS = tuple(f"reg{number}" for number in range(7))
"""Details that hold a register of an XID 74 line, in hexadecimal."""
NO_BITS: dict[str, list[int]] = {name: [] for name in REGISTERS}
"""The bits of a burst that tells no register: nearly all of them. Never changed."""
KEPT_ANSWERS = 20_000

_TEXT, _INT = cel.Type.STRING, cel.Type.INT
_COUNTS = cel.Type.Map(_TEXT, _INT)
_FAULT: dict[str, Any] = {
    "fault.source": _TEXT,
    "fault.check": _TEXT,
    "fault.code": _TEXT,
    "fault.severity": _TEXT,
    "fault.scope": _TEXT,
    "fault.hint": _TEXT,
    "fault.message": _TEXT,
    "fault.entity.kind": _TEXT,
    "fault.entity.name": _TEXT,
    "fault.entity.uuid": _TEXT,
    "fault.entity.pci": _TEXT,
    "fault.entity.device": _TEXT,
    "fault.entity.index": _INT,
    "fault.entity.link": _INT,
    "fault.entity.port": _INT,
}
_NODE: dict[str, Any] = {
    "node.name": _TEXT,
    "node.labels": cel.Type.Map(_TEXT, _TEXT),
    "node.domain": _TEXT,
    "node.pool": _TEXT,
}
_HISTORY: dict[str, Any] = {
    "history.bursts_24h": _COUNTS,
    "history.bursts_7d": _COUNTS,
    "history.repairs_24h": _INT,
    "history.repairs_7d": _INT,
    "history.last_repair_age_s": _INT,
    "history.attempts": _COUNTS,
}
_BURST: dict[str, Any] = {
    "details": cel.Type.Map(_TEXT, _TEXT),
    "bits": cel.Type.Map(_TEXT, cel.Type.List(_INT)),
    "burst.count": _INT,
    "repair.age_s": _INT,
    "repair.same_kind": cel.Type.BOOL,
}


class Vocabulary(StrEnum):
    """Where an expression stands, and so what it may name."""

    RULE = "rule"
    PATTERN = "pattern"
    """`when` of a pattern: one burst of a fault. Nothing in it changes by time alone."""
    UNLESS = "unless"
    FINDING = "finding"
    """`when` of a correlation."""


_VOCABULARIES: Mapping[Vocabulary, Mapping[str, Any]] = {
    Vocabulary.RULE: {**_FAULT, "fault.count": _INT, "fault.age_s": _INT, **_NODE, **_HISTORY},
    Vocabulary.PATTERN: {**_FAULT, **_NODE, **_BURST},
    Vocabulary.UNLESS: {"other": _COUNTS, **_NODE},
    Vocabulary.FINDING: {**_FAULT, **_NODE},
}
VARIABLES = tuple(sorted(_VOCABULARIES[Vocabulary.RULE]))
"""Names that the expression of a rule may use."""


def names(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Names that an expression of `vocabulary` may use, sorted."""
    return tuple(sorted(_VOCABULARIES[vocabulary]))


@dataclass(frozen=True)
class Program:
    """A compiled expression, or why it does not compile.

    `uses`: the variables that it names, sorted; `of_burst`: one of them differs between the bursts of a fault.
    """

    expression: Any
    problem: str = ""
    uses: tuple[str, ...] = ()
    of_burst: bool = False
    when: str = ""
    vocabulary: Vocabulary = Vocabulary.RULE


@lru_cache(maxsize=len(Vocabulary))
def _environment(vocabulary: Vocabulary) -> Any:
    return cel.NewEnv(variables=dict(_VOCABULARIES[vocabulary]))


@lru_cache(maxsize=4096)
def compile_rule(when: str, vocabulary: Vocabulary = Vocabulary.RULE) -> Program:
    """Compile `when`, which must yield a bool. Never raises: the problem is in the result, one clause for people."""
    if len(when) > MAX_EXPRESSION_CHARS:
        return Program(None, f"the expression is longer than {MAX_EXPRESSION_CHARS} characters")
    try:
        expression = _environment(vocabulary).compile(when)
    except RuntimeError as error:
        return Program(None, _first_line(error))
    if expression.return_type() != cel.Type.BOOL:
        return Program(None, f"the expression yields {expression.return_type().name()} and must yield BOOL")
    # A name in a text literal counts too: that costs a key, never an answer.
    joined = re.sub(r"\s*\.\s*", ".", when)
    known = _VOCABULARIES[vocabulary]
    mentioned = sorted(name for name in known if re.search(rf"\b{re.escape(name)}\b", joined))
    # A comment may stand between the parts of a name; then nothing is left out.
    uses = tuple(sorted(known)) if "//" in when else tuple(mentioned)
    return Program(
        expression,
        uses=uses,
        of_burst=any(name in _BURST for name in uses),
        when=when,
        vocabulary=vocabulary,
    )


Slots = dict[tuple[str, ...], dict[str, bool | str]]
"""Answers by the names that expressions use, then by expression."""


class Values(dict[str, Any]):
    """Values of variables; those that few expressions name are worked out when one asks."""

    def __init__(
        self,
        known: Mapping[str, Any],
        later: Mapping[str, Callable[[], Any]] | None = None,
        shared: Slots | None = None,
    ) -> None:
        super().__init__(known)
        self._later = later or {}
        self._slots: Slots = {}
        self._shared = self._slots if shared is None else shared

    def slots(self, of_burst: bool) -> Slots:
        """Where `holds` looks first: answers for these values, or for what all bursts of a fault have in common."""
        return self._slots if of_burst else self._shared

    def __missing__(self, name: str) -> Any:
        value = self._later[name]()
        self[name] = value
        return value


def variables(
    fault: Fault, node_name: str, node_labels: Mapping[str, str], now: datetime, history: History | None = None
) -> Values:
    """The values that rules see. Ages are whole seconds since the fault was first seen, never negative."""
    past = history or History(open=(fault,))
    return Values(
        {
            **fault_values(fault),
            "fault.count": fault.count,
            "fault.age_s": max(0, int((now - fault.first_seen).total_seconds())),
        },
        {**_node_later(node_name, node_labels), **_history_later(fault, past, now)},
    )


def fault_values(fault: Fault) -> dict[str, Any]:
    """What a fault is, without what changes as it is seen again."""
    entity = fault.entity
    return {
        "fault.source": fault.source,
        "fault.check": fault.check,
        "fault.code": fault.code,
        "fault.severity": fault.severity.value,
        "fault.scope": fault.scope.value,
        "fault.hint": fault.hint.value,
        "fault.message": fault.message[:MAX_MESSAGE_CHARS],
        "fault.entity.kind": entity.kind.value,
        "fault.entity.name": entity.name or "",
        "fault.entity.uuid": entity.uuid or "",
        "fault.entity.pci": entity.pci or "",
        "fault.entity.device": entity.device or "",
        "fault.entity.index": UNKNOWN_NUMBER if entity.index is None else entity.index,
        "fault.entity.link": UNKNOWN_NUMBER if entity.link is None else entity.link,
        "fault.entity.port": UNKNOWN_NUMBER if entity.port is None else entity.port,
    }


def finding_values(fault: Fault, node_name: str, node_labels: Mapping[str, str]) -> Values:
    """The values that a correlation sees."""
    return Values(fault_values(fault), _node_later(node_name, node_labels))


def burst_values(
    fault: Mapping[str, Any],
    burst: Burst,
    node_name: str,
    node_labels: Mapping[str, str],
    repair_age_s: int,
    same_kind: bool,
    shared: Slots | None = None,
) -> Values:
    """The values that a pattern sees of one burst of a fault (`fault_values`).

    `repair_age_s`: from the last proved repair, -1 without one. `shared`: one for all bursts of the fault.
    """
    return Values(
        {
            **fault,
            "burst.count": burst.count,
            "repair.age_s": repair_age_s,
            "repair.same_kind": same_kind,
        },
        {
            **_node_later(node_name, node_labels),
            "details": lambda: dict(burst.details),
            "bits": lambda: register_bits(burst.details),
        },
        shared,
    )


def unless_values(other: Mapping[str, int], node_name: str, node_labels: Mapping[str, str]) -> Values:
    """The values that `unless` of a pattern sees."""
    return Values({"other": dict(other)}, _node_later(node_name, node_labels))


def register_bits(details: Mapping[str, str]) -> dict[str, list[int]]:
    """Numbers of the bits set in `reg0` to `reg6`; none where a register is missing or not hexadecimal."""
    if not any(name in details for name in REGISTERS):
        return NO_BITS
    return {name: _set_bits(details.get(name, "")) for name in REGISTERS}


def _set_bits(text: str) -> list[int]:
    digits = text.strip().lower().removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{1,16}", digits):
        return []
    value = int(digits, 16)
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


def _node_later(node_name: str, node_labels: Mapping[str, str]) -> dict[str, Callable[[], Any]]:
    return {
        "node.name": lambda: node_name,
        "node.labels": lambda: dict(node_labels),
        "node.domain": lambda: domain_of(node_labels) or "",
        "node.pool": lambda: pool_of(node_labels),
    }


def _history_later(fault: Fault, history: History, now: datetime) -> dict[str, Callable[[], Any]]:
    day, week = now - timedelta(days=1), now - timedelta(days=7)
    return {
        "history.bursts_24h": lambda: _bursts_since(history, fault.entity, day),
        "history.bursts_7d": lambda: _bursts_since(history, fault.entity, week),
        "history.repairs_24h": lambda: sum(at > day for at in history.repairs()),
        "history.repairs_7d": lambda: sum(at > week for at in history.repairs()),
        "history.last_repair_age_s": lambda: _age_s(history.repairs(), now),
        "history.attempts": lambda: _counted(a.rung for a in history.attempts),
    }


def _bursts_since(history: History, entity: Entity, since: datetime) -> dict[str, int]:
    """Bursts by `check/code` on the device of `entity`; of a fault about the node itself, on the whole node."""
    whole_node = entity.kind is EntityKind.NODE
    device = device_of(entity)
    counted = (f for f in history.faults() if whole_node or device_of(f.entity) == device)
    return _counted(
        f"{f.check}/{f.code}"
        for f in counted
        for burst in bursts_of(f)
        if burst.until > since and (history.boundary is None or burst.until > history.boundary)
    )


def device_of(entity: Entity) -> str:
    """The device that `entity` is or belongs to: the GPU of an NVLink, the adapter of a port."""
    gpu = entity.kind in (EntityKind.GPU, EntityKind.NVLINK)
    kind = EntityKind.GPU if gpu else entity.kind
    return Entity(
        kind=kind, name=entity.name, uuid=entity.uuid, pci=entity.pci, index=entity.index, device=entity.device
    ).key()


def _counted(keys: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items()))


def _age_s(moments: tuple[datetime, ...], now: datetime) -> int:
    return max(0, int((now - moments[-1]).total_seconds())) if moments else UNKNOWN_NUMBER


_answers: OrderedDict[tuple[Any, ...], dict[str, bool | str]] = OrderedDict()
"""Answers by content (vocabulary, names, values), then by expression: memory of a pure function, bounded."""


def holds(when: str, values: Mapping[str, Any], vocabulary: Vocabulary = Vocabulary.RULE) -> bool | str:
    """Whether `when` is true of `values`; a text instead of a bool says why it could not be told."""
    return answer(compile_rule(when, vocabulary), values)


def answer(program: Program, values: Mapping[str, Any]) -> bool | str:
    """The same for a compiled expression."""
    if program.problem:
        return program.problem
    slot = values.slots(program.of_burst).get(program.uses) if isinstance(values, Values) else None
    if slot is None:
        slot = _slot(program, values)
    found = slot.get(program.when)
    if found is None:
        found = slot[program.when] = _evaluate(program, {name: values[name] for name in program.uses})
    return found


def _slot(program: Program, values: Mapping[str, Any]) -> dict[str, bool | str]:
    """Where answers for these values are kept."""
    key = (program.vocabulary, program.uses, *(_frozen(values[name]) for name in program.uses))
    slot = _answers.get(key)
    if slot is None:
        slot = _answers[key] = {}
        if len(_answers) > KEPT_ANSWERS:
            _answers.popitem(last=False)
    if isinstance(values, Values):
        values.slots(program.of_burst)[program.uses] = slot
    return slot


def _evaluate(program: Program, used: Mapping[str, Any]) -> bool | str:
    try:
        result = program.expression.eval(data=used)
    except RuntimeError as error:
        return _first_line(error)
    value = result.value()
    # An error during evaluation comes back as a value of type ERROR, not as an exception.
    return value if isinstance(value, bool) else str(value)[:200]


def _frozen(value: Any) -> Any:
    if value is NO_BITS:
        return ()
    if isinstance(value, dict):
        return tuple(sorted((key, _frozen(item)) for key, item in value.items()))
    return tuple(value) if isinstance(value, list) else value


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()[0]
    for noise in ("INVALID_ARGUMENT: ", "ERROR: <input>:", " [INVALID_ARGUMENT]", " (in container '')"):
        text = text.replace(noise, "")
    return text[:200]
