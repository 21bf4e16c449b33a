"""What the program writes into the runbooks: `python -m tests.runbooks.pages` in the root of the project.

Nothing is written by hand between a line such as `<!-- screen -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from muster.faults import catalogue
from muster.faults.runbooks import Runbook, runbook
from muster.operate.model import NOTE_REASONS
from muster.operate.policy import judge
from muster.resources.fault import Entity, EntityKind, Fault, Hint, Scope, Severity
from muster.resources.fault_policy import Disposition
from tests.operate.worlds import START
from tests.runbooks.samples import AUTOMATED, SAFE, screen

FOLDER = Path(__file__).parents[2] / "docs/runbooks"
INDEX = "README.md"
BLOCK = re.compile(r"<!-- (screen|codes|pages|events) -->\n.*?<!-- end -->\n", re.DOTALL)
_WEIGHT = tuple(Severity)


@dataclass(frozen=True)
class Known:
    """A code of the catalogue as it is seen at its worst. `shown` is how people write it."""

    check: str
    code: str
    shown: str
    severity: Severity
    scope: Scope
    hint: Hint

    @property
    def page(self) -> Runbook:
        return runbook(self.check, self.code)


def known() -> Iterator[Known]:
    """Every code that Muster knows, in the order of the catalogue."""
    whole = catalogue.load()
    for xid in whole.xids:
        yield Known("xid", str(xid.code), f"XID {xid.code}", xid.severity, xid.scope, xid.hint)
    for sxid in whole.sxids:
        severity, hint = catalogue.sxid_class(sxid.class_name).if_fatal
        yield Known("sxid", str(sxid.code), f"SXID {sxid.code}", severity, Scope.FABRIC, hint)
    for row in whole.conditions:
        yield Known(row.check, row.code, f"`{row.code}`", row.severity, row.scope, row.hint)
    for dcgm in whole.dcgm:
        yield Known("dcgm", dcgm.code, f"`{dcgm.code}`", dcgm.severity, dcgm.scope, dcgm.hint)
    for pattern in AUTOMATED.patterns:
        yield Known("pattern", pattern.name, f"`{pattern.name}`", pattern.severity, pattern.scope, pattern.hint)


def filled(name: str, text: str) -> str:
    """The page with what the program writes into it."""

    def block(match: re.Match[str]) -> str:
        kind = match[1]
        return f"<!-- {kind} -->\n\n{_content(kind, name)}\n\n<!-- end -->\n"

    return BLOCK.sub(block, text)


def _content(kind: str, name: str) -> str:
    if kind == "pages":
        return "\n".join(_pages())
    if kind == "events":
        rows = [f"| `{reason}` | {meaning} |" for reason, meaning in sorted(NOTE_REASONS.items())]
        return "\n".join(["| reason | means |", "|---|---|", *rows])
    page = Runbook(name.removesuffix(".md"))
    if kind == "screen":
        return "\n".join(f"    {line}" for line in ["$ muster node NAME", *screen(page).splitlines()])
    return "\n".join(_codes(k for k in known() if k.page is page))


def _codes(codes: Iterable[Known]) -> Iterator[str]:
    """Codes with equal fate in one row, the worst first."""
    rows: dict[tuple[Severity, Hint, str, str], list[str]] = {}
    for code in codes:
        if code.severity is Severity.UNKNOWN and code.check == "xid" and code.hint is Hint.NONE:
            continue  # reserved numbers
        fate = (code.severity, code.hint, asked(code, SAFE), asked(code, AUTOMATED))
        rows.setdefault(fate, []).append(code.shown)
    yield "| codes | severity | what usually helps | by default | full automation |"
    yield "|---|---|---|---|---|"
    for fate, shown in sorted(rows.items(), key=lambda item: (_WEIGHT.index(item[0][0]), item[0][1:])):
        severity, hint, safe, automated = fate
        dcgm = [s for s in shown if "DCGM_" in s or "VIOLATION" in s]
        named = shortened([s for s in shown if s not in dcgm])
        if dcgm:
            named += ("; " if named else "") + f"{len(dcgm)} code{'' if len(dcgm) == 1 else 's'} of DCGM"
        yield f"| {named} | {severity} | {hint} | {safe} | {automated} |"


def asked(code: Known, policy: object) -> str:
    """What a policy asks for, in words."""
    fault = Fault(
        source="kernel-log",
        check=code.check,
        code=code.code,
        entity=Entity(kind=EntityKind.GPU, uuid="GPU-1"),
        severity=code.severity,
        scope=code.scope,
        hint=code.hint,
        first_seen=START,
        last_seen=START,
    )
    judgement = judge(policy, fault, {}, START)  # type: ignore[arg-type]  # an EffectivePolicy
    match judgement.disposition:
        case Disposition.IGNORE:
            return "ignored"
        case Disposition.OBSERVE:
            return "listed"
        case Disposition.CONDITION:
            return "shown"
        case Disposition.HOLD:
            return "**held**"
        case Disposition.DRAIN:
            return "**held, drained**"
        case Disposition.REPAIR:
            ladder = ", ".join(step.rung.value for step in judgement.ladder)
            return f"**held, drained**, then {ladder}" if ladder else "**held, drained**"
        case _:
            assert_never(judgement.disposition)


def shortened(shown: list[str]) -> str:
    """`XID 8, XID 11, `x`` as `XID 8, 11; `x``."""
    parts: list[str] = []
    for prefix in ("XID ", "SXID "):
        numbers = [int(s.removeprefix(prefix)) for s in shown if s.startswith(prefix)]
        if numbers:
            parts.append(prefix + ", ".join(_ranges(numbers)))
    parts += [s for s in shown if s.startswith("`")]
    return "; ".join(parts)


def _ranges(numbers: list[int]) -> Iterator[str]:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    for run in runs:
        yield str(run[0]) if len(run) == 1 else f"{run[0]}{' to ' if len(run) > 2 else ', '}{run[-1]}"


def title(page: Runbook) -> str:
    return (FOLDER / f"{page.value}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _pages() -> Iterator[str]:
    yield "| page | codes |"
    yield "|---|---|"
    by_page: dict[Runbook, list[str]] = {page: [] for page in Runbook}
    for code in known():
        by_page[code.page].append(code.shown)
    for page, shown in by_page.items():
        yield f"| [{title(page)}]({page.value}.md) | {shortened(shown)} |"


def main() -> None:
    for page in sorted(FOLDER.glob("*.md")):
        page.write_text(filled(page.name, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
