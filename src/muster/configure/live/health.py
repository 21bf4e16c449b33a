"""Custom resources: what their component says about them (CEL), else what their own conditions say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from cel_expr_python import cel

from muster.configure.live.check import WELL, Verdict, failed, unknown, worst
from muster.configure.live.kinds import Condition, condition

MAX_EXPRESSION_CHARS = 4096
_READY = ("Ready", "Available", "Healthy", "Succeeded", "Accepted")
"""Conditions that say of a whole object that it is well, the first that is there counts."""

_WELL_WORDS = frozenset({"ready", "complete", "completed", "succeeded"})
_BAD_WORDS = frozenset(
    {
        "notready",
        "error",
        "erroring",
        "failed",
        "degraded",
        "unhealthy",
        "blocked",
        "in_progress",
        "initializing",
        "pending",
    }
)


@lru_cache(maxsize=1)
def _environment() -> Any:
    return cel.NewEnv(variables={"object": cel.Type.DYN})


@lru_cache(maxsize=1024)
def _compile(expression: str) -> tuple[Any, str]:
    if len(expression) > MAX_EXPRESSION_CHARS:
        return None, f"the rule is longer than {MAX_EXPRESSION_CHARS} characters"
    try:
        return _environment().compile(expression), ""
    except RuntimeError as error:
        return None, f"the rule does not compile ({str(error).splitlines()[0][:160]})"


def by_rule(expression: str, why: str, obj: Mapping[str, Any]) -> Verdict:
    """`expression` over `object`: true is well, false is `why`; an error or an absent field is unknown."""
    program, problem = _compile(expression)
    if problem:
        return unknown(problem)
    try:
        value = program.eval(data={"object": dict(obj)}).value()
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        return unknown(f"the rule cannot be evaluated ({(str(error).splitlines() or [''])[0][:160]})")
    if value is True:
        return WELL
    if value is False:
        return failed(why)
    # An error during evaluation comes back as a value, not as an exception.
    return unknown(f"the rule gives no answer ({str(value)[:160]})")


def by_status(obj: Mapping[str, Any]) -> Verdict | None:
    """What the status of the object says of the whole, by its conditions and its word of state; None: nothing."""
    status = obj.get("status")
    status = status if isinstance(status, Mapping) else {}
    told = [v for v in (_by_conditions(obj, status), _by_word(status)) if v is not None]
    return worst(told) if told else None


def _by_word(status: Mapping[str, Any]) -> Verdict | None:
    """Some operators write one word: `state` (NVIDIA's, Percona's) or `status` (NodeWright)."""
    for key in ("state", "status"):
        word = status.get(key)
        if isinstance(word, str) and word.lower() in _WELL_WORDS:
            return WELL
        if isinstance(word, str) and word.lower() in _BAD_WORDS:
            return failed(f"its {key} is {word}")
    return None


def _by_conditions(obj: Mapping[str, Any], status: Mapping[str, Any]) -> Verdict | None:
    try:
        conditions = msgspec.convert(status.get("conditions") or [], tuple[Condition, ...], strict=False)
    except msgspec.ValidationError:
        return None
    found = next((c for kind in _READY if (c := condition(conditions, kind)) is not None), None)
    if found is None:
        return None
    told = f"{found.type} is {found.status}"
    if found.reason or found.message:
        told += f" ({': '.join(part for part in (found.reason, ' '.join(found.message.split())[:200]) if part)})"
    match found.status:
        case "True":
            return _observed(obj, status)
        case "False":
            return failed(told)
        case _:
            return unknown(told)


def _observed(obj: Mapping[str, Any], status: Mapping[str, Any]) -> Verdict:
    metadata = obj.get("metadata")
    generation = metadata.get("generation") if isinstance(metadata, Mapping) else None
    observed = status.get("observedGeneration")
    if isinstance(generation, int) and isinstance(observed, int) and observed < generation:
        return failed("its controller has not taken up the newest version yet")
    return WELL
