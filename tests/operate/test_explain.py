"""Every explanation says why, on what evidence, what is next and who can change it."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.explain import explain
from muster.operate.explain_text import render
from muster.operate.model import Refusal
from muster.operate.phrases import duration
from muster.plain_text import plain
from muster.resources.base import ObjectMeta
from muster.resources.fault import Burst, Entity, EntityKind, Hint
from muster.resources.maintenance import Maintenance
from muster.resources.node_health import (
    Cause,
    GpuAssignment,
    Lifecycle,
    MonitorState,
    MonitorStatus,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    Notice,
    NoticeKind,
    NoticeStatus,
    Observed,
    PersonHold,
    Standing,
    State,
)
from muster.resources.repair import Rung
from tests.demo.samples import (
    at,
    certificate,
    failed_certification,
    health,
    in_service,
    out_of_service,
    reboot_repair,
    repairing,
)
from tests.operate.test_decide_history import shared
from tests.operate.test_decide_maintenance import go_to, planned
from tests.operate.test_decide_repairs import broken, laddered, recovered
from tests.operate.worlds import START, World, fault, pod, readings, serving


def test_a_node_under_repair_shows_fault_verdict_runs_and_attempts() -> None:
    told = explain(repairing(), [failed_certification()], [reboot_repair()], now=at(110))
    text = render(told)
    assert text.splitlines()[0] == "node-02 is Repairing, held (fault) since 2026-01-05 09:45:00 UTC (5 min)."
    for piece in (
        "because of fault: XID 119 on GPU 3: the GSP does not answer",
        "is void since 2026-01-05 09:40:00 UTC: a disqualifying fault opened",
        "xid 119 on gpu/GPU-3 (fatal, scope gpu, hint reset-gpu; kernel-log, seen 3 times",
        "Timeout after 6s of waiting for RPC response",
        "repair-1 (repair): Failed, compute: GPU 3 computes too slowly",
        "at most 0.0004",
        "run r1-3, round 1, gpu-burn on node-02: FAIL (compute): 412.5 TFLOP/s, floor 500",
        "link node-02 - node-09: Failed: slow (runs r2-1)",
        "reset-gpu, attempt 1: recertification-failed",
        "reboot, attempt 1: under way; provider simulated-cloud says Running (op-7)",
        "the reboot to show a new boot ID (for 5 min)",
        "When the boot ID changed",
        "muster node node-02 release",
        "Quarantined",
    ):
        assert piece in text


def test_log_lines_cannot_steer_the_terminal() -> None:
    text = render(explain(repairing(), now=at(110)))
    assert "Timeout after 6s" in text
    assert all(c.isprintable() or c == "\n" for c in text)


def test_no_field_of_an_agent_can_steer_the_terminal() -> None:
    evil = "\x1b[2J\u202e\n" * 500
    entity = Entity(kind=EntityKind.GPU, name=evil)
    seen = fault()
    seen = msgspec.structs.replace(seen, source=evil, check=evil, code=evil, entity=entity, message=evil)
    monitor = MonitorStatus(name=evil, state=MonitorState.DEGRADED, message=evil)
    observed = Observed(
        observed_at=START,
        node_uid="u",
        boot_id="b",
        fingerprint=readings(),
        faults=(seen,),
        monitors=(monitor,),
    )
    health = NodeHealth(metadata=ObjectMeta(name="n1"), status=NodeHealthStatus(observed=observed))
    life = Lifecycle(state=State.IN_SERVICE, since=START)
    full = msgspec.structs.replace(health, status=NodeHealthStatus(observed=observed, lifecycle=life))
    for shown in (health, full):
        text = render(explain(shown, (), (), now=START))
        assert all(line.isprintable() for line in text.split("\n"))
        assert len(text.split("\n")) < 30


def test_a_node_in_service_shows_its_certificate() -> None:
    text = render(explain(in_service(), [failed_certification()], now=at(90)))
    assert (
        "(profile bringup, from bringup-1), issued 2026-01-05 08:30:00 UTC, 1 h ago, is valid: 1 test passed." in text
    )
    assert "repair-1" not in text


def test_a_node_out_of_service_shows_its_ticket_and_who_decides() -> None:
    told = explain(out_of_service(), now=at(210))
    assert told.ticket == "INC-00042"
    assert told.who[0] == "A person decides."
    assert "Ticket: INC-00042" in render(told)


def test_a_persons_hold_comes_first_and_says_how_it_ends() -> None:
    held = NodeHealthSpec(hold=PersonHold(by="alice", reason="cable work"), paused=True)
    told = explain(health("n1", in_service().status.lifecycle, spec=held), now=at(90))
    assert told.why[0] == "alice holds it: cable work."
    assert told.who[0] == "'muster node n1 release' ends the hold of alice."
    assert "ends the pause" in told.who[1]
    assert any("paused" in sentence for sentence in told.why)


def test_grace_is_said() -> None:
    life = Lifecycle(
        state=State.IN_SERVICE, since=at(0), certificate=certificate(Standing.GRACE, "driver.version changed")
    )
    assert "works on under grace: driver.version changed" in render(explain(health("n1", life), now=at(1)))


def test_a_node_without_controller_says_so() -> None:
    told = explain(health("n1", None), now=at(0))
    assert told.state == "unknown"
    assert "agents alone only watch" in told.why[0]


def test_agents_alone_show_faults_monitors_and_runbooks() -> None:
    bare = health("n1", None, (fault(),))
    assert bare.status.observed is not None
    monitor = MonitorStatus(name="kernel-log", state=MonitorState.DEGRADED, message="Operation not permitted")
    observed = msgspec.structs.replace(bare.status.observed, monitors=(monitor,))
    watched = msgspec.structs.replace(bare, status=NodeHealthStatus(observed=observed))
    text = render(explain(watched, now=at(0)))
    assert "xid 79" in text
    assert "monitor kernel-log is degraded: Operation not permitted" in text
    assert "docs/runbooks/gpu-gone.md" in text


def test_a_word_that_changed_no_state_is_not_why_the_state_was_entered() -> None:
    served = in_service()
    life = served.status.lifecycle
    assert life is not None
    word = msgspec.structs.replace(life.history[-1], at=at(101), cause=_put_off(life.history[-1].cause))
    life = msgspec.structs.replace(life, history=(*life.history, word))
    told = explain(health("n1", life), now=at(110))
    assert "It entered this state because: Put off by ana." not in told.why
    assert any(step.cause == "Put off by ana." for step in told.history)


def _put_off(cause: Cause) -> Cause:
    return msgspec.structs.replace(cause, message="Put off by ana.")


def test_a_node_without_agent_says_so() -> None:
    bare = NodeHealth(metadata=in_service().metadata, status=msgspec.convert({}, type(in_service().status)))
    life = msgspec.structs.replace(bare.status, lifecycle=in_service().status.lifecycle)
    told = explain(msgspec.structs.replace(bare, status=life), now=at(90))
    assert any("No agent has reported" in piece.text for piece in told.evidence)


@pytest.mark.parametrize("state", list(State))
def test_every_state_says_what_is_next_and_who_can_change_it(state: State) -> None:
    told = explain(health("n1", Lifecycle(state=state, since=at(0))), now=at(5))
    assert told.next
    assert told.who
    assert told.why
    assert state.value in told.headline


def test_it_is_plain_json() -> None:
    told = msgspec.to_builtins(explain(repairing(), [failed_certification()], [reboot_repair()], now=at(110)))
    assert json.loads(json.dumps(told))["node"] == "node-02"


@given(st.text(max_size=2000), st.integers(4, 300))
def test_foreign_text_becomes_one_bounded_printable_line(text: str, at_most: int) -> None:
    result = plain(text, at_most)
    assert len(result) <= at_most
    assert result.isprintable()


@pytest.mark.parametrize(
    ("minutes", "text"),
    [(-1, "0 s"), (0, "0 s"), (0.7, "42 s"), (3 + 1 / 6, "3 min 10 s"), (125, "2 h 5 min"), (60 * 24 * 4, "4 d")],
)
def test_durations_have_two_units(minutes: float, text: str) -> None:
    assert duration(at(minutes) - at(0)) == text


def explained(world: World, *maintenances: Maintenance) -> str:
    status = NodeHealthStatus(observed=world.node.observed, lifecycle=world.life)
    found = NodeHealth(metadata=ObjectMeta(name="n1"), spec=world.node.spec, status=status)
    return render(explain(found, repairs=world.node.repairs, now=world.now, maintenances=maintenances))


def test_a_drain_of_one_gpu_says_how_far_it_is_who_blocks_and_who_works_on() -> None:
    world = laddered(Rung.RESET_GPU, Rung.TICKET)
    world.node = dataclasses.replace(world.node, pods=(pod("a", gpus=4), pod("b", gpus=2), pod("c", gpus=2)))
    told = tuple(GpuAssignment(pod_uid=f"uid-{n}", pod=f"work/{n}", gpus=(g,)) for n, g in GPUS)
    world.observe(fault("48", hint=Hint.RESET_GPU, seen=world.now), assignments=told)
    world.settle()
    text = explained(world)
    assert "2 of 2 pods left. Only pods on GPU-1 leave; 1 on other GPUs work on." in text
    world.node = dataclasses.replace(world.node, pods=(pod("b", gpus=2), pod("c", gpus=2)))
    message = "disruption budget.: The disruption budget web needs 2 healthy pods and has 2 currently"
    world.node = dataclasses.replace(world.node, refusals=(Refusal("uid-b", message, world.now),))
    world.pass_time(60)
    world.settle()
    text = explained(world)
    assert "1 of 2 pods left." in text
    assert "PodDisruptionBudget web forbids the eviction of work/b since" in text
    assert "pod work/a holds 1 GPU, GPU-1 at fault." in text
    assert "pod work/c holds 1 GPU." in text


GPUS = (("a", "GPU-1"), ("b", "GPU-1"), ("c", "GPU-2"))


def test_bursts_patterns_earlier_repairs_and_notices_are_evidence() -> None:
    world = broken(Rung.RESET_GPU, Rung.REBOOT, Rung.TICKET)
    recovered(world, "boot-1")
    world.pass_time(600)
    times = tuple(world.now - timedelta(minutes=m) for m in (30, 10, 1))
    found = msgspec.structs.replace(
        fault(seen=times[0]), bursts=tuple(Burst(at=t, until=t, details={"gpc": "3"}) for t in times)
    )
    notice = Notice(
        id="ev-1",
        source="aws",
        kind=NoticeKind.REBOOT,
        status=NoticeStatus.SCHEDULED,
        not_before=world.now + timedelta(days=1),
    )
    world.observe(found, notices=(notice,))
    world.settle()
    text = explained(world)
    assert "in 3 bursts since 2026-01-05" in text
    assert "gpc=3" in text
    assert "reset-gpu for xid/79/gpu/GPU-1: proved" in text
    assert "reboot, attempt 1: under way" in text
    assert "aws announces reboot (scheduled): not before" in text


def test_a_maintenance_says_its_window_and_who_can_put_it_off() -> None:
    world = serving()
    made = planned(world)
    text = explained(world, made)
    assert "Maintenance pdu-7 (power work), Announced: 2026-01-05" in text
    go_to(world, made.spec.opens_at)
    world.settle()
    text = explained(world, made)
    assert "Handed over for maintenance" in text
    assert "hands it back" in text


def test_what_a_correlation_holds_back_names_the_change() -> None:
    world = serving()
    world.correlations = shared(world)
    world.observe(fault(seen=world.now))
    world.settle()
    assert "driver.version 580.65 -> 580.95" in explained(world)


def test_the_screen_is_one_screen() -> None:
    world = broken(Rung.RESET_GPU, Rung.TICKET)
    assert len(explained(world).splitlines()) <= 40
