"""What a `dcgmi diag` run proves: a pass is evidence for what it exercised, if every check was carried out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.read.advice import advice
from muster.read.diagnostics.diag import Diag, Message, Status, Test
from muster.read.diagnostics.error_codes import meaning
from muster.read.report import Evidence, ReadFault, Result, Value, Verdict
from muster.read.source import printable
from muster.resources.fault import Hint, Scope, Severity

LEVELS = (1, 2, 3, 4)
_OPTIONAL = ("eud", "eud_test", "cpu_eud", "cpu_eud_test")
"""Skipped on every machine where the vendor's extra package is not installed."""


def judge(diag: Diag, told_level: int | None, suffix: str = "") -> list[Verdict]:
    """The verdict on the run, by its level. A cut table may be of any level from the one that it shows on."""
    result, reason, message = _judge(diag)
    levels = [told_level or diag.level]
    if told_level is None and not diag.complete:
        levels = [level for level in LEVELS if level >= diag.level]
    return [Verdict(f"dcgm-diag-r{level}{suffix}", result, reason, message) for level in levels]


def gpu_verdicts(faults: Sequence[ReadFault]) -> list[Verdict]:
    """FAIL for each GPU with a failed test, unless the check itself or a setting failed."""
    found: dict[int, Verdict] = {}
    for fault in faults:
        index = fault.entity.get("index")
        if isinstance(index, int) and fault.severity is not Severity.UNKNOWN and fault.scope is not Scope.CONFIG:
            found.setdefault(index, Verdict(f"gpu {index}", Result.FAIL, "test-failed", fault.name))
    return [found[index] for index in sorted(found)]


def _judge(diag: Diag) -> tuple[Result, str, str]:
    failed = [test for test in diag.tests if test.status is Status.FAIL]
    if failed:
        return _failed(failed)
    if diag.error:
        return Result.INVALID, "diag-not-run", diag.error[:300]
    if not diag.complete:
        return Result.UNKNOWN, "truncated-output", "The output ends before its end: what is missing may have failed."
    messages = [(test, message) for test in diag.tests for message in test.messages]
    unmade = next(((t, m) for t, m in messages if _not_carried_out(m)), None)
    if unmade is not None:
        return (
            Result.INVALID,
            "check-not-carried-out",
            f"{unmade[0].name} says pass, and also: {unmade[1].text[:200]}",
        )
    if messages or any(test.status is Status.WARN for test in diag.tests):
        test = next(t for t in diag.tests if t.messages or t.status is Status.WARN)
        return Result.WARN, "passed-with-warnings", f"{test.name}: {(_first(test) or 'warning')[:200]}"
    skipped = [test.name for test in diag.tests if _skipped(test) and test.key not in _OPTIONAL]
    if skipped:
        return Result.UNKNOWN, "tests-skipped", f"Not carried out: {', '.join(skipped[:8])}."
    if not any(test.status is Status.PASS for test in diag.tests):
        return Result.UNKNOWN, "no-tests", "No test has a result."
    return Result.PASS, "passed", "Says nothing about what the run did not exercise (links, other nodes)."


def _failed(failed: Sequence[Test]) -> tuple[Result, str, str]:
    """FAIL, unless all that failed is the check itself or a setting of the machine."""
    messages = [message for test in failed for message in test.messages]
    explained = all(test.messages for test in failed)
    text = f"{failed[0].name}: {(_first(failed[0]) or 'failed')[:200]}"
    if explained and all(_not_carried_out(message) for message in messages):
        return Result.INVALID, "check-not-carried-out", text
    if explained and all(_setting(message) or _not_carried_out(message) for message in messages):
        return Result.WARN, "configuration", text
    return Result.FAIL, "test-failed", text


def _skipped(test: Test) -> bool:
    return test.status is Status.SKIP or Status.SKIP in test.gpus.values()


def _first(test: Test) -> str:
    return test.messages[0].text if test.messages else ""


def _not_carried_out(message: Message) -> bool:
    """The catalogue knows the code, and that it says nothing about the hardware."""
    known = meaning(message.code)
    return known is not None and known.severity is Severity.UNKNOWN and known.scope is Scope.SOFTWARE


def _setting(message: Message) -> bool:
    known = meaning(message.code)
    return known is not None and known.scope is Scope.CONFIG


def values(diag: Diag) -> dict[str, Value]:
    """Versions, devices and counts, under the names of the vocabulary."""
    found: dict[str, Value] = {}
    for name, value in (("dcgm_version", diag.dcgm_version), ("driver_version", diag.driver_version)):
        if value is not None:
            found[name] = Value(value)
    if diag.device_ids:
        found["gpu_device_ids"] = Value(list(diag.device_ids))
    for status, name in (
        (Status.PASS, "tests_passed"),
        (Status.FAIL, "tests_failed"),
        (Status.WARN, "tests_warned"),
        (Status.SKIP, "tests_skipped"),
    ):
        found[name] = Value(sum(1 for test in diag.tests if test.status is status))
    failed = {test.name: sorted(g for g, s in test.gpus.items() if s is Status.FAIL) for test in diag.tests}
    failed = {name: gpus for name, gpus in failed.items() if gpus}
    if failed:
        found["failed_gpus_by_test"] = Value(failed)
    return found


def faults(diag: Diag, file: str, lines: Sequence[str]) -> tuple[ReadFault, ...]:
    """One fault for each failed test and GPU; of the node where no GPU is named."""
    found: list[ReadFault] = []
    for test in diag.tests:
        if test.status is not Status.FAIL:
            continue
        named = sorted(gpu for gpu, status in test.gpus.items() if status is Status.FAIL)
        failed: list[int | None] = [*(named or sorted({m.gpu for m in test.messages if m.gpu is not None}))]
        for gpu in failed or [None]:
            messages = [m for m in test.messages if gpu is None or m.gpu in (gpu, None)]
            found.append(_fault(test, gpu, messages, file, lines))
    return tuple(found)


def _fault(test: Test, gpu: int | None, messages: Sequence[Message], file: str, lines: Sequence[str]) -> ReadFault:
    coded = next((m for m in messages if m.code is not None), None)
    known = meaning(coded.code) if coded is not None else None
    # A failed test without a known code is a reason to look, never to act.
    severity = known.severity if known is not None else Severity.WARNING
    hint = known.hint if known is not None else Hint.INSPECT
    scope = known.scope if known is not None else (Scope.GPU if gpu is not None else Scope.NODE)
    entity: dict[str, Any] = {"kind": "node"} if gpu is None else {"kind": "gpu", "index": gpu}
    entity["pci"] = None
    numbers = tuple(n for n in (test.line, *(m.line for m in messages)) if n)
    shown = tuple(printable(lines[n - 1].strip(), 200) for n in numbers[:4] if n <= len(lines))
    who = {**entity, "name": f"number {gpu}"} if gpu is not None else entity
    return ReadFault(
        code=coded.code if coded is not None else "dcgm-diag-failed",
        kind="dcgm-diag",
        entity=entity,
        severity=severity,
        scope=scope,
        hint=hint,
        name=f"test {test.name} failed",
        count=1,
        count_is="exact",
        first=None,
        last=None,
        details={"test": test.name, "messages": [m.text for m in messages[:5]]},
        evidence=(Evidence(file, numbers[:20], shown, len(numbers)),) if numbers else (),
        next=advice(hint, severity, who, {}),
    )
