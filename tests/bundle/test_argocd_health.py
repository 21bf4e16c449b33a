"""The health rule in Lua 5.1, as Argo CD runs it, on statuses as Argo CD writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lupa.lua51 import LuaRuntime

from muster.configure.render import argocd

NOW = datetime(2026, 9, 1, 12, 0, 0, tzinfo=UTC)
RULE = argocd.health_rule()["data"][argocd.HEALTH_KEY]


def _strftime(moment: datetime, layout: str) -> str:
    """The flags that Argo CD's os.date knows and the rule uses."""
    flags = {"Y": "%Y", "m": "%m", "d": "%d", "H": "%H", "M": "%M", "S": "%S"}
    out, at = "", 0
    while at < len(layout):
        if layout[at] == "%":
            out += moment.strftime(flags[layout[at + 1]])
            at += 2
        else:
            out += layout[at]
            at += 1
    return out


def assess(application: dict[str, Any], now: datetime = NOW, zone_h: int = 0) -> tuple[str, str]:
    """(status, message) with what Argo CD offers: base, table, and two functions of os by way of `require`."""
    lua = LuaRuntime(register_eval=False, register_builtins=False)
    zone = timezone(timedelta(hours=zone_h))

    def os_time(table: Any = None) -> float:
        if table is None:
            return now.timestamp()
        day = datetime(int(table["year"]), int(table["month"]), int(table["day"]), tzinfo=zone)
        within = timedelta(hours=int(table["hour"]), minutes=int(table["min"]), seconds=int(table["sec"]))
        return (day + within).timestamp()

    def os_date(layout: str, at: float | None = None) -> Any:
        # As in Argo CD: `!` means UTC only where no time is given.
        moment = now.astimezone(zone) if at is None else datetime.fromtimestamp(at, zone)
        if layout.startswith("!"):
            layout = layout[1:]
            moment = now if at is None else moment
        if layout == "*t":
            names = {"year": "year", "month": "month", "day": "day", "hour": "hour", "min": "minute", "sec": "second"}
            return lua.table_from({lua_name: getattr(moment, name) for lua_name, name in names.items()})
        return _strftime(moment, layout)

    lua.execute("getmetatable('').__index = nil; string, io, os, math, debug, coroutine, package = nil")
    modules = {"os": lua.table_from({"time": os_time, "date": os_date})}
    lua.globals()["require"] = modules.__getitem__
    lua.globals()["obj"] = _table(lua, application)
    found = lua.execute(RULE)
    assert sorted(found.keys()) == ["message", "status"]
    return found["status"], found["message"]


def _table(lua: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return lua.table_from({k: _table(lua, v) for k, v in value.items() if v is not None})
    if isinstance(value, list):
        return lua.table_from([_table(lua, v) for v in value])
    return value


def at(before_s: float) -> str:
    return (NOW - timedelta(seconds=before_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


SOURCE = {
    "repoURL": "https://charts.example",
    "chart": "gpu-operator",
    "targetRevision": "v25.3.0",
    "helm": {"releaseName": "gpu-operator", "values": "driver:\n  enabled: true\n"},
}
OLD = SOURCE | {"targetRevision": "v25.2.0"}
OTHER_VALUES = SOURCE | {"helm": {"releaseName": "gpu-operator", "values": "driver:\n  enabled: false\n"}}
DESTINATION = {"server": "https://kubernetes.default.svc", "namespace": "gpu-operator"}


def compared(source: dict[str, Any], status: str = "Synced") -> dict[str, Any]:
    return {"status": status, "revision": "v25.3.0", "comparedTo": {"source": source, "destination": DESTINATION}}


def operation(phase: str, source: dict[str, Any] | None, message: str = "", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operation": {"sync": {"revision": "v25.3.0"}, "initiatedBy": {"automated": True}},
        "phase": phase,
        "message": message,
        "startedAt": at(100),
    }
    if source is not None:
        found["syncResult"] = {"revision": "v25.3.0", "source": source}
    if phase not in ("Running", "Terminating"):
        found["finishedAt"] = at(60)
    return found | more


def application(status: dict[str, Any] | None, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "metadata": {
            "name": "gpu-operator",
            "labels": {"muster.dev/component": "gpu-operator"},
            "annotations": {"muster.dev/timeout-s": "600"},
        },
        "spec": {"project": "default", "source": SOURCE, "destination": DESTINATION} | spec,
    }
    if status is not None:
        found["status"] = status
    return found


HEALTHY = {"status": "Healthy"}
RECONCILED = {"reconciledAt": at(10)}
DONE = operation("Succeeded", SOURCE, "successfully synced (all tasks run)")

# What Argo CD has written -> what the parent may make of it.
CASES: dict[str, tuple[dict[str, Any] | None, str]] = {
    "just created, no status": (None, "Progressing"),
    "an empty status": ({"health": {}, "sync": {"status": "Unknown"}, "summary": {}}, "Progressing"),
    "compared, not yet synced": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": {"status": "Missing"}} | RECONCILED, "Progressing"),
    "syncing for the first time": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": {"status": "Missing"},
         "operationState": operation("Running", SOURCE, "waiting for apps/Deployment/x")}, "Progressing"),
    "between two attempts": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": {"status": "Missing"},
         "operationState": operation("Running", None, "one or more objects failed to apply. Retrying attempt #2",
                                     finishedAt=at(5), retryCount=2)}, "Progressing"),
    "synced, objects start": (
        {"sync": compared(SOURCE), "health": {"status": "Progressing"}, "operationState": DONE} | RECONCILED,
        "Progressing"),
    "healthy": ({"sync": compared(SOURCE), "health": HEALTHY, "operationState": DONE} | RECONCILED, "Healthy"),
    "healthy, objects adopted without a sync": (
        {"sync": compared(SOURCE), "health": HEALTHY} | RECONCILED, "Healthy"),
    "upgraded, nothing has looked yet": (
        {"sync": compared(OLD), "health": HEALTHY, "operationState": operation("Succeeded", OLD)} | RECONCILED,
        "Progressing"),
    "values changed, nothing has looked yet": (
        {"sync": compared(OTHER_VALUES), "health": HEALTHY,
         "operationState": operation("Succeeded", OTHER_VALUES)} | RECONCILED, "Progressing"),
    "upgraded, compared, old objects healthy": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": HEALTHY, "operationState": operation("Succeeded", OLD)}
        | RECONCILED, "Progressing"),
    "upgraded, syncing, old objects healthy": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": HEALTHY, "operationState": operation("Running", SOURCE)}
        | RECONCILED, "Progressing"),
    "upgraded, just synced, health is of before the sync": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": HEALTHY, "operationState": DONE, "reconciledAt": at(70)},
        "Progressing"),
    "compared in the very second in which the sync ended": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": HEALTHY, "operationState": DONE, "reconciledAt": at(60)},
        "Progressing"),
    "synced, and stays different (a webhook changes it)": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": HEALTHY, "operationState": DONE} | RECONCILED, "Healthy"),
    "upgraded without a difference": (
        {"sync": compared(SOURCE), "health": HEALTHY, "operationState": operation("Succeeded", OLD)} | RECONCILED,
        "Healthy"),
    "failed": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": {"status": "Missing"},
         "operationState": operation("Failed", SOURCE, "one or more objects failed")} | RECONCILED, "Degraded"),
    "failed before it had a result": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": {"status": "Missing"},
         "operationState": operation("Error", None, "failed to load project")} | RECONCILED, "Degraded"),
    "failed, old objects healthy": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": HEALTHY, "operationState": operation("Failed", SOURCE)}
        | RECONCILED, "Degraded"),
    "an older version failed, the present one is not yet tried": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": {"status": "Missing"},
         "operationState": operation("Failed", OLD)} | RECONCILED, "Progressing"),
    "chart not found": (
        {"sync": compared(SOURCE, "Unknown"), "health": HEALTHY,
         "conditions": [{"type": "ComparisonError", "message": "chart not found", "lastTransitionTime": at(30)}]}
        | RECONCILED, "Degraded"),
    "project forbids it": (
        {"sync": {"status": "Unknown"}, "health": {"status": "Unknown"},
         "conditions": [{"type": "InvalidSpecError", "message": "not permitted in project"}]}, "Degraded"),
    "a warning": (
        {"sync": compared(SOURCE), "health": HEALTHY, "operationState": DONE,
         "conditions": [{"type": "OrphanedResourceWarning", "message": "1 orphan"}]} | RECONCILED, "Healthy"),
    "objects degraded, within the timeout": (
        {"sync": compared(SOURCE), "health": {"status": "Degraded"}, "operationState": DONE} | RECONCILED,
        "Progressing"),
    "objects degraded, never synced": (
        {"sync": compared(SOURCE), "health": {"status": "Degraded"}} | RECONCILED, "Degraded"),
    "objects missing": (
        {"sync": compared(SOURCE, "OutOfSync"), "health": {"status": "Missing"}, "operationState": DONE} | RECONCILED,
        "Progressing"),
    "suspended": (
        {"sync": compared(SOURCE), "health": {"status": "Suspended"}, "operationState": DONE} | RECONCILED,
        "Progressing"),
    "being terminated": (
        {"sync": compared(SOURCE), "health": HEALTHY, "operationState": operation("Terminating", SOURCE)}
        | RECONCILED, "Progressing"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_statuses(name: str) -> None:
    status, expected = CASES[name]
    assert assess(application(status))[0] == expected


@pytest.mark.parametrize("name", [name for name, (_, expected) in CASES.items() if expected == "Progressing"])
def test_waiting_ends(name: str) -> None:
    """Whatever is waited for becomes Degraded, so that the parent tries again with the newest revision."""
    status, _ = CASES[name]
    found, message = assess(application(status), NOW + timedelta(seconds=700))
    if status and "operationState" in status:
        assert (found, message[:24]) == ("Degraded", "not ready within 600 s: ")
    else:
        assert found == "Progressing"


sources = st.sampled_from([None, SOURCE, OLD, OTHER_VALUES, {"repoURL": ""}])
moments = st.none() | st.integers(0, 2000).map(at)
healths = st.sampled_from(["Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown", "", None])
phases = st.sampled_from(["Running", "Terminating", "Failed", "Error", "Succeeded", "", None])


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_status(data: st.DataObject) -> None:
    """Whatever is written there: an answer that Argo CD knows, and healthy only for what is proven to be present."""
    draw = data.draw
    phase, result, found, health = draw(phases), draw(sources), draw(sources), draw(healths)
    sync = draw(st.sampled_from(["Synced", "OutOfSync", "Unknown", None]))
    finished, reconciled = draw(moments), draw(moments)
    status = _without_nulls(
        {
            "health": draw(st.sampled_from([{"status": health}, None])),
            "sync": {"status": sync, "comparedTo": {"source": found, "destination": DESTINATION}},
            "operationState": {
                "phase": phase,
                "startedAt": draw(moments),
                "finishedAt": finished,
                "syncResult": draw(st.sampled_from([{"source": result}, None])),
            },
            "reconciledAt": reconciled,
        }
    )
    answer, _ = assess(application(status))
    assert answer in ("Healthy", "Progressing", "Degraded")
    if answer == "Healthy":
        assert status["health"] == HEALTHY
        assert found == SOURCE
        assert phase not in ("Running", "Terminating")
        settled = phase == "Succeeded" and result == SOURCE and finished and reconciled and finished < reconciled
        assert sync == "Synced" or settled


@pytest.mark.parametrize("zone_h", [-11, -3, 0, 2, 14])
def test_the_timeout_does_not_depend_on_the_time_zone(zone_h: int) -> None:
    waiting = application(CASES["synced, objects start"][0])
    started = NOW - timedelta(seconds=100)
    for after_s, expected in ((599, "Progressing"), (600, "Progressing"), (601, "Degraded")):
        assert assess(waiting, started + timedelta(seconds=after_s), zone_h)[0] == expected


def test_a_healthy_release_is_never_late() -> None:
    healthy = application(CASES["healthy"][0])
    assert assess(healthy, NOW + timedelta(days=30))[0] == "Healthy"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("synced, objects start", "Healthy"),
        ("healthy", "Healthy"),
        ("syncing for the first time", "Progressing"),
        ("upgraded, nothing has looked yet", "Progressing"),
        ("objects missing", "Progressing"),
        ("objects degraded, never synced", "Degraded"),
        ("failed", "Degraded"),
    ],
)
def test_objects_that_wait_for_a_later_release(name: str, expected: str) -> None:
    """A claim that only a pod of the next wave binds would hold that wave for ever."""
    found = application(CASES[name][0])
    found["metadata"]["annotations"]["muster.dev/awaits"] = "nothing"
    assert assess(found)[0] == expected


def test_failure_says_why() -> None:
    assert assess(application(CASES["failed"][0])) == ("Degraded", "one or more objects failed")
    assert assess(application(CASES["chart not found"][0])) == ("Degraded", "chart not found")


def test_fields_that_argo_cd_leaves_out_make_no_difference() -> None:
    status = CASES["healthy"][0]
    written = SOURCE | {"path": "", "helm": SOURCE["helm"] | {"skipCrds": False, "parameters": []}}  # type: ignore[operator]
    assert assess(application(status, source=written))[0] == "Healthy"
    for changed in (SOURCE | {"path": "x"}, SOURCE | {"helm": {"releaseName": "x"}}, {}):
        assert assess(application(status, source=changed))[0] == "Progressing"


def test_a_moved_namespace_is_another_version() -> None:
    moved = application(CASES["healthy"][0], destination=DESTINATION | {"namespace": "elsewhere"})
    assert assess(moved)[0] == "Progressing"


def test_several_sources() -> None:
    """Argo CD writes `sources`, and beside it an empty `source`."""
    both = [SOURCE, {"repoURL": "https://git.example/x.git", "ref": "values"}]
    old = [OLD, both[1]]

    def status(sources: list[dict[str, Any]]) -> dict[str, Any]:
        empty = {"repoURL": ""}
        return {
            "sync": {
                "status": "Synced",
                "comparedTo": {"source": empty, "sources": sources, "destination": DESTINATION},
            },
            "health": HEALTHY,
            "operationState": operation("Succeeded", empty)
            | {"syncResult": {"revision": "", "source": empty, "sources": sources}},
        } | RECONCILED

    for sources, expected in ((both, "Healthy"), (old, "Progressing"), (both[:1], "Progressing")):
        found = application(status(sources), sources=both)
        del found["spec"]["source"]
        assert assess(found)[0] == expected


def test_applications_of_others_keep_their_own_health() -> None:
    for status, expected in (
        ({"health": HEALTHY}, "Healthy"),
        ({"health": {"status": "Degraded"}, "operationState": operation("Running", OLD)}, "Degraded"),
        (None, "Progressing"),
    ):
        found = application(status)
        found["metadata"]["labels"] = {"team": "x"}
        assert assess(found)[0] == expected
        del found["metadata"]["labels"]
        assert assess(found)[0] == expected
