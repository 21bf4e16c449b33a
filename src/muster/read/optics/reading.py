"""Verdicts, faults and values of links with their modules, link tests and firmware lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.read.fabric_ports.finding import Finding
from muster.read.optics import judge, speed
from muster.read.optics.link_test import Firmware, LinkTest
from muster.read.optics.module import Link, Measured
from muster.read.report import Result, Value, Verdict
from muster.read.tables.source import tidy
from muster.resources.fault import Scope

GOOD_SHARE = 0.9
"""Share of the link rate that a write or send test should reach (ours; RDMA headers take 2 to 4 %)."""


def values_of(link: Link) -> dict[str, Value]:
    """The readings under the names of the report."""
    found: dict[str, Value] = {}
    if link.device:
        found["device"] = Value(link.device)
    for name in ("state", "physical_state", "fec", "module_state", "identifier", "recommendation"):
        if name in link.text:
            found[name] = Value(link.text[name])
    width = speed.width_of(link)
    if "speed" in link.text:
        found["speed"] = Value(link.text["speed"], None, {"width": width} if width is not None else {})
    if link.cable_type is not None:
        found["cable_type"] = Value(link.cable_type.value)
    for name, measured in link.measured.items():
        found[name] = _measured(name, measured)
    for name, flags in link.flags.items():
        found[name] = Value(list(flags) if len(flags) > 1 or not name.endswith("fw_fault") else flags[0])
    for name, number in link.numbers.items():
        found[name] = Value(tidy(number) if "ber" not in name else number, "min" if "minutes" in name else None)
    if link.raw_errors:
        found["raw_errors_per_lane"] = Value(list(link.raw_errors))
    if judge.has_module_readings(link) or link.cable_type is not None:
        found["optical_rules_apply"] = Value(link.optical_rules_apply)
    return found


def _measured(name: str, measured: Measured) -> Value:
    shown: list[Any] = [tidy(value) if value is not None else None for value in measured.values]
    limits = [measured.low, measured.high]
    more = {"range": [tidy(x) if x is not None else None for x in limits]} if limits != [None, None] else {}
    single = name in ("temperature", "voltage") and len(shown) == 1
    return Value(shown[0] if single else shown, measured.unit or None, more)


def judged(
    link: Link, suffix: str, expected_gbps: float | None, fec: str | None
) -> tuple[list[Finding], list[Verdict]]:
    """Findings of one link, and the passes where nothing is wrong. `suffix` tells several links apart."""
    module, whole = f"module{suffix}", f"link{suffix}"
    of_module = judge.module_findings(link, module)
    of_link = judge.link_findings(link, whole, expected_gbps, fec)
    passes: list[Verdict] = []
    if judge.has_module_readings(link) and not of_module:
        if link.optical_rules_apply:
            passes.append(Verdict(module, Result.PASS, "within-limits"))
        elif link.cable_type is None:
            passes.append(Verdict(module, Result.UNKNOWN, "no-monitoring", "The module measures nothing."))
    if not of_link and ("state" in link.text or link.numbers):
        passes.append(Verdict(whole, Result.PASS, "up" if "state" in link.text else "no-errors"))
    return of_module + of_link, passes


def judge_tests(tests: Sequence[LinkTest], expected_gbps: float | None) -> tuple[dict[str, Value], list[Verdict]]:
    """Figures of the largest message of each test. Writes and sends decide; reads are limited by open requests."""
    values: dict[str, Value] = {}
    verdicts: list[Verdict] = []
    by_test: dict[str | None, LinkTest] = {}
    for row in tests:
        if row.test not in by_test or row.message_bytes >= by_test[row.test].message_bytes:
            by_test[row.test] = row
    for number, (test, row) in enumerate(by_test.items()):
        name = "bandwidth" if number == 0 else f"bandwidth of {test or 'test'}"
        more: dict[str, Any] = {"test": test}
        if row.unit not in ("Gb/sec", "Gbit/s", "Gb/s"):
            more["printed"] = {"value": row.average, "unit": row.unit.replace("/sec", "/s")}
        values[name] = Value(
            row.gbps if row.gbps is not None else row.average, "Gb/s" if row.gbps else row.unit, more
        )
        values.setdefault("message_size", Value(row.message_bytes, "B"))
        if row.gbps is None or test in ("read", "atomic"):
            continue
        wanted = expected_gbps * (2 if row.bidirectional else 1) if expected_gbps is not None else None
        of = "bandwidth" if len(by_test) == 1 else f"bandwidth of {test or 'test'}"
        if wanted is None:
            message = "Tell the rate of the link (expected_rate_gbps in the context)."
            verdicts.append(Verdict(of, Result.UNKNOWN, "expectation-missing", message))
        elif row.gbps >= GOOD_SHARE * wanted:
            verdicts.append(Verdict(of, Result.PASS, "near-link-rate"))
        else:
            message = f"{row.gbps:g} of {wanted:g} Gb/s."
            verdicts.append(Verdict(of, Result.WARN, "below-link-rate", message, {"value": row.gbps}))
    return values, verdicts


def judge_firmware(entries: Sequence[Firmware], file: str) -> tuple[dict[str, Value], list[Finding], list[Verdict]]:
    """What is flashed and what runs, of each adapter in order."""
    values: dict[str, Value] = {}
    findings: list[Finding] = []
    verdicts: list[Verdict] = []
    for number, entry in enumerate(entries):
        name = "firmware" if len(entries) == 1 else f"firmware {number}"
        values[name] = Value({"flashed": entry.flashed, "running": entry.running or entry.flashed})
        if entry.running is not None and entry.running != entry.flashed:
            findings.append(
                Finding(
                    name,
                    Result.WARN,
                    "reset-pending",
                    f"{entry.flashed} is flashed, {entry.running} runs until the adapter is reset.",
                    {"kind": "nic", "name": "adapter"},
                    "Reset the adapter or reboot the node when it is idle, so that the new firmware runs.",
                    scope=Scope.NODE,
                    at=((file, entry.line, ""),),
                )
            )
        elif entry.running is not None or entry.available == entry.flashed:
            verdicts.append(Verdict(name, Result.PASS, "as-flashed"))
    return values, findings, verdicts
