"""An explanation as lines of text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from muster.operate.explain import HISTORY_SHOWN, Explanation
from muster.operate.phrases import duration, moment
from muster.plain_text import printable


def render(explanation: Explanation) -> str:
    """The explanation for a terminal or a log, without colour, ending without a newline."""
    lines = [explanation.headline]
    if explanation.ticket:
        lines.append(f"Ticket: {explanation.ticket}")
    lines += _section("Why", explanation.why)
    lines += _section("Evidence", (piece.text for piece in explanation.evidence))
    lines += _section("Waits for", explanation.waits_for)
    lines += _section("Next", (explanation.next,))
    lines += _section("Who can change it", explanation.who)
    lines += _section("Runbooks", explanation.runbooks)
    shown = explanation.history[-HISTORY_SHOWN:]
    left_out = len(explanation.history) - len(shown)
    title = f"History (the last {len(shown)} of {len(explanation.history)} entries)" if left_out else "History"
    lines += _section(
        title,
        (
            f"{moment(step.at)}  {step.state:<12}  {duration(timedelta(seconds=step.lasted_s)):>11}  {step.cause}"
            for step in shown
        ),
    )
    return "\n".join(printable(line) for line in lines)


def _section(title: str, sentences: Iterable[str]) -> list[str]:
    body = [f"  {sentence}" for sentence in sentences if sentence]
    return [f"{title}:", *body] if body else []
