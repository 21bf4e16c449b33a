"""A fault of one GPU moves the pods that hold it and no others, when it is known which do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.operate.claims import ClaimView, SliceView, claim_view, gpus_of_claims, slice_view
from muster.operate.gpu_scope import ASSIGNMENT_WAIT_S, leaving
from muster.resources.fault import Hint, Scope
from muster.resources.fault_policy import DrainScope
from muster.resources.node_health import GpuAssignment, State
from muster.resources.repair import RepairPhase, Rung
from tests.operate.test_decide_repairs import laddered
from tests.operate.worlds import START, World, fault, pod, readings

UUIDS = tuple(f"GPU-{i}" for i in range(1, 5))


def assigned(**held: tuple[str, ...]) -> tuple[GpuAssignment, ...]:
    return tuple(GpuAssignment(pod_uid=f"uid-{name}", gpus=gpus) for name, gpus in sorted(held.items()))


def one_gpu_faulty(scope: DrainScope = DrainScope.AUTO, **held: tuple[str, ...]) -> World:
    """GPU-1 has a fault; pods a and b work, on the GPUs that are told of them."""
    world = laddered(Rung.RESET_GPU, Rung.REBOOT, Rung.TICKET)
    rule = world.policy.rules[0]
    from msgspec.structs import replace as with_fields

    world.policy = replace(world.policy, rules=(with_fields(rule, scope=scope), *world.policy.rules[1:]))
    world.node = replace(world.node, pods=(pod("a", gpus=4), pod("b", gpus=4)))
    world.observe(fault("48", hint=Hint.RESET_GPU, scope=Scope.GPU, seen=world.now), assignments=assigned(**held))
    world.settle()
    return world


@pytest.mark.requirement("v2.4/BFX01")
def test_only_the_pod_on_the_gpu_leaves_and_the_gpu_is_reset_while_the_other_works_on() -> None:
    world = one_gpu_faulty(a=("GPU-1",), b=("GPU-2",))
    assert world.life.state is State.DRAINING
    assert set(world.evictions) == {"work/a"}
    assert "Only pods on GPU-1 leave; 1 on other GPUs work on." in world.waits["pod"]
    world.node = replace(world.node, pods=(pod("b", gpus=4),))
    world.settle()
    assert world.life.state is State.REPAIRING
    assert world.node.repairs[-1].spec.gpu_uuids == ("GPU-1",)
    assert world.life.held
    world.repair(RepairPhase.DONE)
    world.pass_time(60)
    world.observe(assignments=assigned(b=("GPU-2",)))
    world.settle()
    # It is tested when the rest has ended; nothing is made to leave for that.
    assert world.life.state is State.UNCERTIFIED
    assert "work/b" in world.waits["pod"]
    assert set(world.evictions) == {"work/a"}


def test_the_next_rung_needs_the_node_and_drains_the_rest_first() -> None:
    world = one_gpu_faulty(a=("GPU-1",), b=("GPU-2",))
    world.node = replace(world.node, pods=(pod("b", gpus=4),))
    world.settle()
    world.repair(RepairPhase.FAILED)
    world.settle()
    assert world.life.state is State.DRAINING
    assert set(world.evictions) == {"work/a", "work/b"}
    world.node = replace(world.node, pods=())
    world.settle()
    assert world.rungs == ["reset-gpu", "reboot"]


def test_a_pod_of_which_nothing_tells_the_gpus_makes_it_the_whole_node() -> None:
    world = one_gpu_faulty(a=("GPU-1",))
    assert set(world.evictions) == {"work/a", "work/b"}
    assert "Which GPUs work/b holds is unknown" in world.waits["pod"]
    assert any(n.reason == "WholeNodeDrained" for d in world.decisions for n in d.notes)


def test_a_rule_of_scope_node_drains_all_and_resets_all() -> None:
    world = one_gpu_faulty(DrainScope.NODE, a=("GPU-1",), b=("GPU-2",))
    assert set(world.evictions) == {"work/a", "work/b"}
    world.node = replace(world.node, pods=())
    world.settle()
    assert world.node.repairs[-1].spec.gpu_uuids == ()


def test_a_fault_of_the_node_beside_it_drains_all() -> None:
    world = laddered(Rung.RESET_GPU, Rung.TICKET)
    world.node = replace(world.node, pods=(pod("a"), pod("b")))
    told = assigned(a=("GPU-1",), b=("GPU-2",))
    gpu = fault("48", hint=Hint.RESET_GPU, scope=Scope.GPU, seen=world.now)
    world.observe(gpu, fault("110", scope=Scope.NODE, seen=world.now), assignments=told)
    world.settle()
    assert set(world.evictions) == {"work/a", "work/b"}


names = st.sampled_from(["a", "b", "c", "d"])
gpus = st.lists(st.sampled_from(UUIDS), min_size=1, max_size=2, unique=True).map(lambda g: tuple(sorted(g)))


@given(
    st.dictionaries(names, gpus), st.dictionaries(names, gpus), st.dictionaries(names, gpus), st.sampled_from(UUIDS)
)
def test_nobody_who_may_hold_the_gpu_stays(
    told: dict[str, tuple[str, ...]],
    claimed: dict[str, tuple[str, ...]],
    noted: dict[str, tuple[str, ...]],
    bad: str,
) -> None:
    work = tuple(pod(n, gpu_uuids=noted.get(n, ())) for n in "abcd")
    split = leaving(
        work,
        (bad,),
        assigned(**told),
        {f"uid-{n}": g for n, g in claimed.items()},
        START,
    )
    assert {p.name for p in (*split.pods, *split.stay, *split.unsure)} == set("abcd")
    for p in split.stay:
        held = told.get(p.name) or claimed.get(p.name) or noted.get(p.name)
        assert held
        assert bad not in held
    if any(n not in told and n not in claimed and n not in noted for n in "abcd"):
        assert split.stay == ()
        assert split.unknown


def test_a_new_pod_is_given_time_to_show_its_gpus() -> None:
    work = (pod("a", created=START),)
    young = leaving(work, ("GPU-1",), (), {}, START)
    assert (young.pods, [p.name for p in young.unsure]) == ((), ["a"])
    from datetime import timedelta

    assert young.recheck_at == START + timedelta(seconds=ASSIGNMENT_WAIT_S)
    assert leaving(work, ("GPU-1",), (), {}, young.recheck_at).pods == work


def test_claims_tell_the_gpus_of_a_pod_only_when_all_are_known() -> None:
    claim = (
        b'{"metadata":{"name":"c"},"status":{"allocation":{"devices":{"results":[{"request":"gpu",'
        b'"driver":"gpu.nvidia.com","pool":"n1","device":"gpu-0"}]}},'
        b'"reservedFor":[{"resource":"pods","name":"a","uid":"uid-a"}]}}'
    )
    found = (
        b'{"spec":{"driver":"gpu.nvidia.com","pool":{"name":"n1","generation":2},"devices":[{"name":"gpu-0",'
        b'"attributes":{"uuid":{"string":"GPU-7"},"type":{"string":"gpu"},"index":{"int":0}}}]}}'
    )
    assert claim_view(claim) == ClaimView(("uid-a",), (("n1", "gpu-0"),))
    view = slice_view(found)
    assert view == SliceView("n1", 2, (("gpu-0", "GPU-7"),))
    old = SliceView("n1", 1, (("gpu-0", "GPU-1"),))
    claims = (ClaimView(("uid-a",), (("n1", "gpu-0"),)),)
    assert gpus_of_claims(claims, (old, view)) == ("GPU-7",)
    assert gpus_of_claims((*claims, ClaimView(("uid-a",), (("n1", "mig-1"),))), (view,)) == ()
    assert slice_view(b'{"spec":{"driver":"dra.net","pool":{"name":"n1"}}}') is None
    assert readings().readings  # the node of these tests reports readings of its own
