"""Two replays side by side: what a change of policy would have asked for, and what it would have missed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from muster.operate.backtest.recording import Recording
from muster.operate.backtest.replay import Outcome
from muster.plain_text import counted, plain
from muster.resources.fault import BURST_LIMIT
from muster.resources.fault_policy import Disposition
from muster.resources.node_health import HISTORY_LIMIT, RECENT_DAYS, RECENT_LIMIT, CauseKind, State

ACTING = (Disposition.HOLD, Disposition.DRAIN, Disposition.REPAIR)
MAX_LISTED = 200


def compare(
    recording: Recording,
    candidate: Sequence[Outcome],
    present: Sequence[Outcome],
    since: datetime | None = None,
    *,
    cut: Sequence[str] = (),
) -> dict[str, Any]:
    """The comparison as plain values: totals, per rule, per node, what is new, what is missed, what nobody can tell.

    `cut`: nodes on which not every moment was replayed.
    """
    theirs = {(o.node, o.fault, o.opened_at): o for o in present}
    ours = {(o.node, o.fault, o.opened_at): o for o in candidate}
    new = [o for key, o in sorted(ours.items()) if _acts(o) and not _acts(theirs.get(key))]
    milder = [(o, ours.get(key)) for key, o in sorted(theirs.items()) if _acts(o) and not _acts(ours.get(key))]
    return {
        "nodes": len(recording.nodes),
        "from": _text(since or _earliest(candidate, present)),
        "to": _text(recording.exported_at),
        "candidate": _totals(candidate),
        "present": _totals(present),
        "rules": _by(candidate, present, lambda o: o.rule or "(no rule)", "rule"),
        "perNode": _by(
            [o for o in candidate if _acts(o)], [o for o in present if _acts(o)], lambda o: o.node, "node"
        ),
        "new": [_shown(o, theirs.get((o.node, o.fault, o.opened_at))) for o in new][:MAX_LISTED],
        "missed": [_missed(o, now) for o, now in milder][:MAX_LISTED] + _uncovered(recording, candidate, since),
        "heldBack": [_shown(o, None) for o in candidate if o.capped_by][:MAX_LISTED],
        "unknown": _unknown(recording, since, cut),
        "note": (
            "Counted is what rules would have asked for; budgets and what a hold or a repair would have changed "
            "afterwards are not replayed. Findings count from when agents saw them, not from when the controller was "
            f"told, so correlations may differ. Agents keep closed faults for {RECENT_DAYS} days."
        ),
    }


def _unknown(recording: Recording, since: datetime | None, cut: Sequence[str]) -> list[str]:
    """What the recording does not hold, one sentence each."""
    seen = [(n, n.health.status.observed) for n in recording.nodes]
    lives = [(n, n.health.status.lifecycle) for n in recording.nodes]
    silent = [n.name for n, observed in seen if observed is None]
    recent = [n.name for n, observed in seen if observed is not None and len(observed.recent) >= RECENT_LIMIT]
    bursts = [
        n.name
        for n, o in seen
        if o is not None and any(len(f.bursts) >= BURST_LIMIT for f in (*o.faults, *(p.fault for p in o.recent)))
    ]
    steps = [n.name for n, life in lives if life is not None and len(life.history) >= HISTORY_LIMIT]
    reach = recording.exported_at - timedelta(days=RECENT_DAYS)
    told = [
        (silent, "have no agent that told of them: nothing is known of their faults"),
        (recent, f"keep {RECENT_LIMIT} closed faults, all that there is room for: older ones are forgotten"),
        (bursts, f"have faults with {BURST_LIMIT} bursts, all that there is room for: patterns may count too few"),
        (
            steps,
            f"keep {HISTORY_LIMIT} steps of the lifecycle, all that there is room for: earlier repairs are forgotten",
        ),
        (cut, "had more moments than are replayed: the earliest were left out"),
    ]
    found = [f"{_some(names)} {clause}." for names, clause in told if names]
    if since is not None and since < reach:
        found.append(f"Faults that were closed before {_text(reach)} are forgotten, though more was asked for.")
    return found


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(plain(name, 80) for name in names[:3])
    return f"{counted(len(names), 'node')} ({shown}{', ...' if len(names) > 3 else ''})"


def _acts(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.disposition in ACTING


def _totals(outcomes: Sequence[Outcome]) -> dict[str, int]:
    by = Counter(o.disposition for o in outcomes)
    return {
        "faults": len(outcomes),
        **{f"{d.value}s": by[d] for d in ACTING},
        "nodes": len({o.node for o in outcomes if _acts(o)}),
    }


def _by(candidate: Sequence[Outcome], present: Sequence[Outcome], key: Any, name: str) -> list[dict[str, Any]]:
    keys = sorted({key(o) for o in (*candidate, *present)})
    rows = []
    for one in keys:
        mine = Counter(o.disposition for o in candidate if key(o) == one)
        other = Counter(o.disposition for o in present if key(o) == one)
        rows.append(
            {
                name: one,
                **{f"{d.value}s": mine[d] for d in ACTING},
                "faults": sum(mine.values()),
                "present": {**{f"{d.value}s": other[d] for d in ACTING}, "faults": sum(other.values())},
            }
        )
    return rows


def _shown(outcome: Outcome, before: Outcome | None) -> dict[str, Any]:
    return {
        "node": outcome.node,
        "fault": outcome.fault,
        "at": _text(outcome.at),
        "disposition": outcome.disposition.value,
        "rule": outcome.rule,
        "present": before.disposition.value if before is not None else "",
        "cappedBy": outcome.capped_by,
    }


def _missed(outcome: Outcome, candidate: Outcome | None) -> dict[str, Any]:
    found = candidate.disposition.value if candidate is not None else "nothing"
    present = f"The present policy asks for {outcome.disposition.value} (rule {outcome.rule})"
    return {
        "node": outcome.node,
        "fault": outcome.fault,
        "at": _text(outcome.at),
        "because": f"{present}, this one for {found}.",
    }


def _uncovered(recording: Recording, candidate: Sequence[Outcome], since: datetime | None) -> list[dict[str, Any]]:
    """Nodes that really failed (a certification, a repair by hand) though no rule of the candidate acted before."""
    acted = sorted((o.node, o.at) for o in candidate if _acts(o))
    found = []
    for node in recording.nodes:
        life = node.health.status.lifecycle
        for entry in life.history if life is not None else ():
            failed = entry.state is State.QUARANTINED and entry.cause.kind is CauseKind.CERTIFICATION
            foreseen = any(name == node.name and at <= entry.at for name, at in acted)
            if failed and not foreseen and (since is None or entry.at >= since):
                found.append(
                    {
                        "node": node.name,
                        "fault": "",
                        "at": _text(entry.at),
                        "because": "The node failed its certification; no rule had asked for anything before.",
                    }
                )
    return found[:MAX_LISTED]


def _earliest(*replays: Sequence[Outcome]) -> datetime | None:
    return min((o.at for outcomes in replays for o in outcomes), default=None)


def _text(moment: datetime | None) -> str:
    return moment.isoformat() if moment is not None else ""
