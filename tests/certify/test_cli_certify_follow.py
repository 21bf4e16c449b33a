"""Following a certification: what is said when, on a terminal and elsewhere, and with which exit code it ends."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.certify.report.live import SoFar, news, progress_line, so_far
from muster.cli.certify_follow import AWAY_LIMIT_S, Follower
from muster.cli.certify_run import create
from muster.errors import UnreachableError
from muster.kube.api import CERTIFICATIONS, ConnectionLostError, KubeApi, PatchType
from muster.resources.base import API_VERSION
from muster.resources.certification import Certification, NodeVerdict, Outcome
from muster.sim.virtual import VirtualClock, run_virtual
from tests.certify.bed import Bed, Faults, bed, names
from tests.certify.report_samples import Fleet, certification, course


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def body(nodes: list[str], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Certification",
        "metadata": {"name": "c"},
        "spec": {"nodes": nodes, "profile": "repair", **spec},
    }


def followed(
    count: int,
    faults: Faults,
    *,
    out: io.StringIO | None = None,
    limit_s: float | None = None,
    wrap: Callable[[KubeApi], KubeApi] = lambda api: api,
    beside: Callable[[Bed], Awaitable[None]] | None = None,
    **spec: Any,
) -> tuple[int, str]:
    """Exit code and output of following a certification of the simulated cluster, with its real controller."""
    stream = out or io.StringIO()

    async def scenario(clock: VirtualClock) -> int:
        async with bed(clock, names(count), faults) as b:
            made = await create(b.api, body(names(count), **spec))
            if beside is not None:
                await beside(b)
            return await Follower(wrap(b.api), clock, stream).follow(made, limit_s)

    return run_virtual(scenario), stream.getvalue()


def test_a_healthy_fleet_ends_with_zero_and_plain_lines() -> None:
    code, told = followed(6, Faults())
    assert code == 0
    assert "\r" not in told
    assert "\x1b" not in told
    assert "Passed: all 6 nodes passed" in told
    lines = [line for line in told.split("\n") if line.startswith("[")]
    assert len(lines) == len(set(lines)) > 2


def test_a_bad_node_is_named_before_the_end_and_the_end_is_three() -> None:
    code, told = followed(8, Faults(bad=("n03",)))
    assert code == 3
    live = told.index("n03: Failed")
    assert live < told.index("Not passed")
    for other in names(8):
        assert (f"{other}: Failed" in told) == (other == "n03")


def test_a_terminal_gets_a_bar_that_leaves_no_trace() -> None:
    code, told = followed(6, Faults(), out=Terminal())
    assert code == 0
    assert "\r\x1b[K[" in told
    assert "runs" in told
    ends = told.rindex("\r\x1b[K")
    assert told[ends + 4 :].startswith("c: Passed")


def test_a_timeout_is_five_and_says_how_to_look_again() -> None:
    code, told = followed(6, Faults(), limit_s=60.0)
    assert code == 5
    assert "muster certify status c" in told


def test_the_reason_of_a_standstill_is_said_once() -> None:
    """A certification that cannot run says why, in the scheduler's words, and does not look as if it ran."""

    async def blocked(b: Bed) -> None:
        patch = {"status": {"phase": "Running", "blocked": "0/4 nodes are available"}}
        await b.api.patch(CERTIFICATIONS, "c", patch, PatchType.MERGE, subresource="status")

    code, told = followed(4, Faults(), beside=blocked)
    assert code == 0
    assert told.count("Blocked: 0/4 nodes are available\n") == 1
    assert told.index("Blocked: ") < told.index("No longer blocked.\n") < told.index("Passed: ")


class Flaky:
    """An API that does not answer in a window of virtual time."""

    def __init__(self, api: KubeApi, clock: VirtualClock, start_s: float, end_s: float) -> None:
        self._api, self._clock, self._window = api, clock, (start_s, end_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def get(self, *args: Any, **kwargs: Any) -> Any:
        start, end = self._window
        if start <= self._clock.elapsed_s < end:
            raise ConnectionLostError("The API server does not answer.")
        return await self._api.get(*args, **kwargs)


def test_an_outage_is_told_once_and_waited_out() -> None:
    stream = io.StringIO()

    async def scenario(clock: VirtualClock) -> int:
        async with bed(clock, names(6), Faults()) as b:
            made = await create(b.api, body(names(6)))
            api = Flaky(b.api, clock, 20.0, 120.0)
            return await Follower(api, clock, stream).follow(made, None)

    assert run_virtual(scenario) == 0
    assert stream.getvalue().count("the certification goes on. Waiting.") == 1
    assert "Passed: all 6" in stream.getvalue()


def test_a_server_that_stays_away_is_given_up() -> None:
    async def scenario(clock: VirtualClock) -> None:
        async with bed(clock, names(6), Faults()) as b:
            made = await create(b.api, body(names(6)))
            api = Flaky(b.api, clock, 20.0, 1e9)
            began = clock.elapsed_s
            with pytest.raises(UnreachableError):
                await Follower(api, clock, io.StringIO()).follow(made, None)
            assert clock.elapsed_s - began >= AWAY_LIMIT_S

    run_virtual(scenario)


def test_a_certification_that_was_exchanged_has_no_verdict() -> None:
    stream = io.StringIO()

    async def scenario(clock: VirtualClock) -> int:
        async with bed(clock, names(4), Faults()) as b:
            made = await create(b.api, body(names(4)))
            await b.api.delete(CERTIFICATIONS, "c")
            await create(b.api, body(names(4)))
            return await Follower(b.api, clock, stream).follow(made, None)

    assert run_virtual(scenario) == 3
    assert "created again by somebody else" in stream.getvalue()


def test_what_the_server_says_reaches_no_terminal_unfiltered() -> None:
    async def hostile(b: Bed) -> None:
        patch = {"status": {"phase": "Running", "blocked": "\x1b[31mred\x07\nnext"}}
        await b.api.patch(CERTIFICATIONS, "c", patch, PatchType.MERGE, subresource="status")

    _, told = followed(4, Faults(), beside=hostile, limit_s=1.0)
    assert "\x1b" not in told
    assert "\x07" not in told
    assert "\nnext" not in told


# Pure parts


def test_so_far_never_says_more_than_the_end() -> None:
    fleet = Fleet(bad=("gpu-0003",), links=(("gpu-0006", "gpu-0013"),))
    plan, records, verdicts = course(fleet)
    final = {n.name: n.verdict for n in verdicts.nodes}
    for number in range(1, max(r.round for r in records) + 1):
        found = so_far(plan, [r for r in records if r.round <= number])
        assert [n.name for n in found.nodes] == [n.name for n in verdicts.nodes]
        for node in found.nodes:
            if node.verdict is NodeVerdict.FAILED:
                assert final[node.name] is NodeVerdict.FAILED
    assert so_far(plan, records).nodes == verdicts.nodes


def test_so_far_of_runs_that_do_not_follow_says_nothing() -> None:
    plan, records, _ = course(Fleet())
    assert so_far(plan, records[3:]) == SoFar()
    assert so_far(None, records) == SoFar()


def test_news_are_told_once() -> None:
    plan, records, _ = course(Fleet(bad=("gpu-0003",)))
    after = so_far(plan, records)
    first = news(SoFar(), after, "", "")
    assert len(first) == 1
    assert first[0].startswith("gpu-0003: Failed (")
    assert news(after, after, "", "") == ()
    assert news(after, after, "", "quota") == ("Blocked: quota",)
    assert news(after, after, "quota", "quota") == ()
    assert news(after, after, "quota", "") == ("No longer blocked.",)
    assert news(after, SoFar(), "", "")[0].startswith("gpu-0003: no longer Failed")


def test_the_bar_is_full_only_at_the_end() -> None:
    running, _ = certification(Fleet(), rounds=3)
    line = progress_line(running, 10)
    assert "Running" in line
    assert "." in line[: line.index("]")]
    ended: Certification = certification(Fleet())[0]
    assert "." not in (done := progress_line(ended, 69))[: done.index("]")]
    failed = sum(r.outcome is Outcome.FAIL for r in running.status.runs)
    assert failed == 0
    assert "failed" not in line
