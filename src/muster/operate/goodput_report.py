"""The ledger as plain values, and those as text: what `muster goodput`, the demo and its report show. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from muster.operate.goodput import recovery, waterfall
from muster.operate.goodput_breakdown import By, Row, breakdown
from muster.operate.jobs import JobTime, Wait
from muster.operate.ledger import HOUR_US, NodeRecord, TimeClass, build
from muster.operate.phrases import duration
from muster.plain_text import aligned, plain
from muster.read.training.goodput import Goodput
from muster.read.training.interval_log import Kind

DEFINITION = "share of node time in which a node in service ran a user's GPU pod"
BAR_WIDTH = 40
MOST_SHOWN = 30


def goodput_values(
    records: Sequence[NodeRecord],
    start: datetime,
    end: datetime,
    *,
    by: By | None = None,
    jobs: Sequence[JobTime] | None = None,
    waited: Sequence[Wait] | None = None,
) -> dict[str, Any]:
    """Waterfall, classes and recovery times of the window. Node time in microseconds (exact) and hours (rounded).

    `by`: the same time in rows by something else. `jobs` and `waited` are None where no history is kept.
    """
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
        **({"by": by.value, "rows": [_row(row) for row in breakdown(ledger, by)]} if by is not None else {}),
        **({"jobs": [_job(job) for job in jobs]} if jobs is not None else {}),
        **({"waits": [_wait(wait) for wait in waited]} if waited is not None else {}),
    }


def _row(row: Row) -> dict[str, Any]:
    classes = {name.value: row.classes[name] for name in TimeClass if name in row.classes}
    return {"key": row.key, **_time(row.time_us), "lostUs": row.lost_us, "classesUs": classes}


def _job(job: JobTime) -> dict[str, Any]:
    return {
        "job": job.job,
        "nodes": job.nodes,
        **_time(job.node_us),
        "wallS": job.wall_us / 1e6,
        "runningS": job.running_us / 1e6,
        "interruptions": job.interruptions,
        "ettrAtMost": round(job.ettr_at_most, 6),
        "unread": _time(job.unread_us),
        **(_told(job.parts_us, job.figures) if job.figures is not None else {}),
    }


def _told(parts_us: Mapping[Kind, int], figures: Goodput) -> dict[str, Any]:
    return {
        "parts": {kind.value: _time(length) for kind, length in parts_us.items()},
        "goodput": {
            "time": _share(figures.time),
            "ettr": _share(figures.ettr),
            "ettrWithoutQueue": _share(figures.ettr_without_queue),
            "usefulProgress": _share(figures.useful_progress),
            "flop": _share(figures.flop),
        },
    }


def _wait(wait: Wait) -> dict[str, Any]:
    return {"for": wait.kind, "nodes": wait.nodes, **_time(wait.node_us), "longestS": wait.longest.total_seconds()}


def _share(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


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
        *_rows_shown(values),
        *_jobs_shown(values),
        *_waits_shown(values),
    ]
    return "\n".join(lines)


def _rows_shown(values: dict[str, Any]) -> list[str]:
    rows = values.get("rows", [])
    if "by" not in values:
        return []
    lines = ["", f"By {values['by']}:"]
    table = [(values["by"].upper(), "NODE-HOURS", "LOST", "SHARE LOST")]
    for row in rows[:MOST_SHOWN]:
        lost = f"{row['lostUs'] / row['us']:.1%}" if row["us"] else "-"
        table.append((plain(row["key"], 80), _hours(row["us"]), _hours(row["lostUs"]), lost))
    return [*lines, *aligned(table), *_more(rows)]


def _jobs_shown(values: dict[str, Any]) -> list[str]:
    jobs = values.get("jobs", [])
    if not jobs:
        return []
    table: list[tuple[str, ...]] = [
        ("JOB", "NODES", "NODE-HOURS", "INTERRUPTED", "ETTR", "PRODUCTIVE", "USEFUL", "FLOP")
    ]
    for job in jobs[:MOST_SHOWN]:
        told = job.get("goodput")
        shares = (told["ettr"], told["time"], told["usefulProgress"], told["flop"]) if told else (None,) * 4
        shown = [f"{share:.1%}" if share is not None else "-" for share in shares]
        ettr = shown[0] if told else f"<= {job['ettrAtMost']:.1%}"
        cells = (str(job["nodes"]), _hours(job["us"]), str(job["interruptions"]), ettr, *shown[1:])
        table.append((plain(job["job"], 80), *cells))
    return [
        "",
        "Jobs (PRODUCTIVE, USEFUL and FLOP need the log of the job: --job-log):",
        *aligned(table),
        *_more(jobs),
    ]


def _waits_shown(values: dict[str, Any]) -> list[str]:
    waited = values.get("waits", [])
    if not waited:
        return []
    table = [("NODES WAITED FOR", "NODES", "NODE-HOURS", "LONGEST")]
    table += [
        (plain(wait["for"], 40), str(wait["nodes"]), _hours(wait["us"]), _span(wait["longestS"]))
        for wait in waited[:MOST_SHOWN]
    ]
    return ["", *aligned(table)]


def _more(rows: Sequence[Any]) -> list[str]:
    left = len(rows) - MOST_SHOWN
    return [f"and {left} more; -o json shows all."] if left > 0 else []


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
