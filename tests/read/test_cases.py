"""Every fixture: what a machine printed, and what must be concluded from it."""

from __future__ import annotations

from typing import Any

import pytest

from muster import yamlio
from muster.read.kernel import KernelLogParser
from muster.read.kernel.prefilter import interesting
from tests.read.cases import DATA, check, entries, holds, report

ENTRIES = dict(entries())
LINES = {row["id"]: row for row in yamlio.load(DATA / "lines.yaml")}


@pytest.mark.parametrize("name", ENTRIES)
def test_expectation_holds(name: str) -> None:
    entry = ENTRIES[name]
    assert check(entry, report(entry["case"], entry.get("input"))) == ""


def _said(line: str) -> list[dict[str, Any]]:
    parser = KernelLogParser()
    said = []
    for finding in [*parser.feed([line.encode()]), *parser.flush()]:
        detection = finding.detection
        entity = detection.entity
        fields = ("name", "uuid", "pci", "index", "link", "port", "device")
        said.append(
            {
                "code": detection.code,
                "check": detection.check,
                "severity": detection.severity.value if detection.severity else None,
                "scope": detection.scope.value if detection.scope else None,
                "hint": detection.hint.value,
                "count": detection.count,
                "seen_at": finding.first.text if finding.first else None,
                "entity": {
                    "kind": entity.kind.value,
                    **{name: getattr(entity, name) for name in fields},
                    **detection.about,
                },
                **detection.details,
            }
        )
    return said


@pytest.mark.parametrize("name", LINES)
def test_a_line_says_what_it_says(name: str) -> None:
    row = LINES[name]
    said = _said(row["line"])
    if "says" not in row:
        assert said == []
        return
    assert len(said) == 1, f"{len(said)} findings in {row['line']}"
    wrong = {
        key: (said[0].get(key), value) for key, value in row["says"].items() if not holds(value, said[0].get(key))
    }
    assert wrong == {}, f"(got, wanted) differ: {wrong}"


@pytest.mark.parametrize("name", [name for name, row in LINES.items() if "says" in row])
def test_the_prefilter_lets_the_line_through(name: str) -> None:
    assert interesting(LINES[name]["line"].encode())
