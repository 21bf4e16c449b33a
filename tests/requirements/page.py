"""The page docs/requirements.md: every requirement, the tests that prove it, and an honest list of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.requirements.marks import Proof, Suite
from tests.requirements.rows import Priority, Requirements, Row, Where

PAGE = "docs/requirements.md"

_HEAD = """# What AI clouds ask for

Each row is a requirement on whoever runs an AI cloud, in our own words, with the tests of Muster that prove it. The
IDs are those of `github.com/NVIDIA/ai-cloud-validation`: `v2.4/` is its list of requirements of September 2026,
`companion/` its companion, `sla/` service levels of the former that have no ID there (the names are ours). The
priorities are our proposal.

This page is made from the marks of tests: `python -m tests.requirements docs/requirements.md`.

**Nothing here was proven on GPUs.** Without a word a test runs with `make test`, *full* with `make test-full`; *real
API server* needs a real Kubernetes control plane. Fleets, faults and cloud services in all of them are simulated or
stand-ins. "Partly" says what the tests do not show.
"""

_HOW = """## Mark a test

Put the mark on a test that fails when the requirement is broken, then make the page anew:

```python
@pytest.mark.requirement("v2.4/OFM05")
def test_...
```

The rows are in `tests/requirements/rows.yaml`. A row has tests, or says why it has none (`without`, or `why` for what
is not Muster's business); with `partly` it has tests and says what they leave open. A mark that promises more than
its test shows is worse than none.
"""


def render(requirements: Requirements, proofs: Iterable[Proof]) -> str:
    """The whole page."""
    by_id = by_requirement(proofs)
    rows = [row for area in requirements.areas for row in area.rows]
    parts = [_HEAD, _counts(rows, by_id)]
    for area in requirements.areas:
        proven = [row for row in area.rows if _tests(row, by_id)]
        if proven:
            parts.append(_area(area.area, proven, by_id))
    parts.append(_open([row for row in rows if row.priority is not Priority.OUT and not _tests(row, by_id)]))
    parts.append(_out([row for row in rows if row.priority is Priority.OUT], requirements))
    parts.append(_HOW)
    return "\n".join(parts)


def by_requirement(proofs: Iterable[Proof]) -> dict[str, list[Proof]]:
    """ID -> its tests."""
    found: dict[str, list[Proof]] = {}
    for proof in proofs:
        for name in proof.ids:
            found.setdefault(name, []).append(proof)
    return found


def _tests(row: Row, by_id: Mapping[str, Sequence[Proof]]) -> list[Proof]:
    return list(dict.fromkeys(proof for name in row.ids for proof in by_id.get(name, ())))


def _counts(rows: Sequence[Row], by_id: Mapping[str, Sequence[Proof]]) -> str:
    lines = ["| priority | rows | tested | partly | without a test |", "|---|---|---|---|---|"]
    for priority in (Priority.MUST, Priority.SHOULD):
        mine = [row for row in rows if row.priority is priority]
        tested = [row for row in mine if _tests(row, by_id)]
        partly = [row for row in tested if row.partly]
        numbers = (len(mine), len(tested) - len(partly), len(partly), len(mine) - len(tested))
        lines.append(f"| {priority.value} | {' | '.join(map(str, numbers))} |")
    return "\n".join([*lines, ""])


def _area(title: str, rows: Sequence[Row], by_id: Mapping[str, Sequence[Proof]]) -> str:
    lines = [f"## {title}", "", "| requirement | asks for | proven by |", "|---|---|---|"]
    for row in rows:
        shown = "<br>".join(_shown(proof) for proof in _tests(row, by_id))
        note = f"<br>*Partly: {row.partly}.*" if row.partly else ""
        hardware = "<br>*Not on hardware.*" if Where.HARDWARE in row.where and not row.partly else ""
        lines.append(f"| {', '.join(row.ids)} ({row.priority.value}) | {row.asks} | {shown}{note}{hardware} |")
    return "\n".join([*lines, ""])


def _shown(proof: Proof) -> str:
    name = proof.test.removeprefix("test_").replace("_", " ")
    suite = "" if proof.suite is Suite.QUICK else f" ({proof.suite.value})"
    return f"[{name}](../{proof.file}){suite}"


def _open(rows: Sequence[Row]) -> str:
    lines = ["## Without a test", "", "| requirement | asks for | why |", "|---|---|---|"]
    lines += [f"| {', '.join(row.ids)} ({row.priority.value}) | {row.asks} | {row.without} |" for row in rows]
    return "\n".join([*lines, ""])


def _out(rows: Sequence[Row], requirements: Requirements) -> str:
    lines = ["## Not Muster's business", "", "| requirement | about | whose |", "|---|---|---|"]
    lines += [f"| {', '.join(row.ids)} | {row.asks} | {row.why} |" for row in rows]
    lines += [f"| {b.list}: {b.ids} | {b.about} | other systems' |" for b in requirements.beyond]
    return "\n".join([*lines, ""])
