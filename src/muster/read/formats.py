"""The formats that `muster read` knows, in one table. A further one is a module and a row in its package's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muster.errors import BadInputError
from muster.read import bandwidth, collectives, dcgm_health, diagnostics, fabric_ports, kubernetes, smi, training
from muster.read.format import Format
from muster.read.kernel import logs
from muster.read.report import Report
from muster.read.source import Context, Input, holds_text
from muster.read.tables import events, peers, rollout

LEAST_SCORE = 0.3
"""Below this an input is not recognised; better a question than a wrong reading."""

FORMATS: tuple[Format, ...] = (
    *bandwidth.FORMATS,
    *diagnostics.FORMATS,
    *fabric_ports.FORMATS,
    *smi.FORMATS,
    *dcgm_health.FORMATS,
    *kubernetes.FORMATS,
    *collectives.FORMATS,
    *training.FORMATS,
    Format("event list", (events.KIND,), events.score, events.parse),
    Format("rates per version", (rollout.KIND,), rollout.score, rollout.parse),
    Format("counts per node", (peers.KIND,), peers.score, peers.parse),
    Format("log", (logs.KERNEL_LOG, logs.FABRIC_MANAGER, logs.PCIE), logs.score, logs.parse),
)
"""Of equal scores the first wins; the last of a kind is what a forced `--kind` falls back to."""


def kinds() -> tuple[str, ...]:
    """All kinds, sorted."""
    return tuple(sorted({kind for entry in FORMATS for kind in entry.kinds}))


def detect(item: Input, kind: str | None = None) -> Format:
    """The format of an input. With `kind` the best of that kind is taken, however unsure.

    Raises BadInputError when the kind is not known or nothing recognises the input.
    """
    if kind is not None and kind not in kinds():
        raise BadInputError(f"Unknown kind {kind!r}; the kinds are {', '.join(kinds())}.")
    possible = [entry for entry in FORMATS if kind is None or kind in entry.kinds]
    scored = [(entry.detect(item.sample), entry) for entry in possible]
    best, entry = max(scored, key=lambda pair: pair[0])
    if kind is not None:
        return entry if best > 0 else possible[-1]
    if best < LEAST_SCORE:
        raise BadInputError(f"Cannot tell what {item.name} is; name it with --kind ({', '.join(kinds())}).")
    return entry


def read(inputs: Sequence[Input], context: Context, kind: str | None = None) -> Report:
    """Read the inputs together. Raises BadInputError for one that is empty, no text, or of another format."""
    for item in inputs:
        if not item.sample:
            raise BadInputError(f"{item.name} is empty; give a file with at least one line.")
        if not holds_text(item.sample):
            raise BadInputError(f"{item.name} holds no line of text; give a log or a table.")
    found = [detect(item, kind) for item in inputs]
    lead = next((entry for entry in found if all(_together(entry, other) for other in found)), None)
    if lead is None:
        other = next(i for i, entry in enumerate(found) if entry is not found[0])
        raise BadInputError(
            f"{inputs[0].name} ({found[0].name}) and {inputs[other].name} ({found[other].name}) differ in format;"
            " read them one after the other."
        )
    report = lead.parse(inputs, context)
    return report if kind is None else replace(report, kind=kind)


def _together(lead: Format, other: Format) -> bool:
    """`lead` reads an input of the other format beside its own."""
    return other is lead or other.name in lead.takes
