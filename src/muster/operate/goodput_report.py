"""The ledger as plain values, and those as text: what `muster goodput`, the demo and its report show. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from muster.operate.goodput import recovery, waterfall
from muster.operate.ledger import HOUR_US, NodeRecord, build
from muster.operate.phrases import duration

DEFINITION = "share of node time in which a node in service ran a user's GPU pod"
BAR_WIDTH = 40


def goodput_values(records: Sequence[NodeRecord], start: datetime, end: datetime) -> dict[str, Any]:
    """Waterfall, classes and recovery times of the window. Node time in microseconds (exact) and hours (rounded)."""
    ledger = build(records, start, end)
    fall = waterfall(ledger)
    found = recovery(records, ledger)
    return {
        "definition": DEFINITION,
        "from": start.isoformat(),
        "to": end.isoformat(),
        "nodes": len({s.node for s in ledger.spans}),
        "goodput": round(fall.share, 6),
        "total": _time(fall.total_us),
        "losses": [
            {
                "cause": step.label,
                **_time(step.time_us),
                "parts": [
                    {
                        "class": part.time_class.value,
                        **({"rung": part.rung} if part.rung else {}),
                        **_time(part.time_us),
                        "stillBusyUs": part.busy_us,
                    }
                    for part in step.parts
                ],
            }
            for step in fall.losses
        ],
        "busy": _time(fall.busy_us),
        "classes": {name.value: _time(value) for name, value in ledger.by_class().items()},
        "recovery": {
            "returns": len(found.returns),
            "stillOut": found.open_episodes,
            "meanTimeToReturnS": _seconds(found.mean_time_to_return),
            "medianTimeToReturnS": _seconds(found.median_time_to_return),
            "meanTimeToValidatedReturnS": _seconds(found.mean_time_to_validated_return),
            "meanTimeBetweenFaultsS": _seconds(found.mean_time_between_faults),
        },
    }


def render_goodput(values: dict[str, Any]) -> str:
    """`goodput_values` for a terminal: the waterfall with bars, then the recovery times."""
    total = values["total"]["us"]
    lines = [
        f"Goodput {values['goodput']:.1%}: {values['definition']}.",
        f"{values['nodes']} nodes, {values['from']} to {values['to']}.",
        "",
        _bar("all node time", total, total, 0),
    ]
    left = total
    for loss in values["losses"]:
        left -= loss["us"]
        lines.append(_bar(f"- {loss['cause']}", loss["us"], total, left))
        lines.extend(_part(p) for p in loss["parts"] if len(loss["parts"]) > 1)
    lines.append(_bar("= busy in service", values["busy"]["us"], total, 0))
    back = values["recovery"]
    lines += [
        "",
        f"Returned to service: {back['returns']}; still out: {back['stillOut']}.",
        f"Out of service until back, mean: {_span(back['meanTimeToReturnS'])}; "
        f"median: {_span(back['medianTimeToReturnS'])}.",
        f"From the end of the repair until proved and back, mean: {_span(back['meanTimeToValidatedReturnS'])}.",
        f"Node time in service between faults, mean: {_span(back['meanTimeBetweenFaultsS'])}.",
    ]
    return "\n".join(lines)


def _bar(label: str, time_us: int, total_us: int, offset_us: int) -> str:
    blank = offset_us * BAR_WIDTH // total_us if total_us else 0
    fill = -(-time_us * BAR_WIDTH // total_us) if total_us else 0
    bar = (" " * blank + "#" * fill)[:BAR_WIDTH]
    share = time_us / total_us if total_us else 0.0
    return f"{label:<40} {_hours(time_us):>10} node-hours {share:>6.1%}  |{bar:<{BAR_WIDTH}}|"


def _part(part: dict[str, Any]) -> str:
    name = f"{part['class']}, {part['rung']}" if "rung" in part else part["class"]
    busy = f", of which {_hours(part['stillBusyUs'])} while a job still ran" if part["stillBusyUs"] else ""
    return f"    {name:<36} {_hours(part['us']):>10} node-hours{busy}"


def _time(time_us: int) -> dict[str, Any]:
    return {"us": time_us, "nodeHours": round(time_us / HOUR_US, 3)}


def _hours(time_us: int) -> str:
    return f"{time_us / HOUR_US:.2f}"


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _span(seconds: float | None) -> str:
    return "none counted" if seconds is None else duration(timedelta(seconds=seconds))
