"""What puts a certificate in doubt and what follows: one table, over the pure decision and through the controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from msgspec.structs import replace as with_fields

from muster.kube.api import BASELINES, CERTIFICATIONS, NODE_HEALTHS, PODS, PatchType
from muster.operate.age import SPREAD, jitter
from muster.operate.coverage import InForce, Standard
from muster.operate.model import WavePlan
from muster.operate.policy import effective_policy
from muster.resources.base import API_VERSION, to_object
from muster.resources.certification import ProfileTests
from muster.resources.fault_policy import Budget, CertificationPolicy, DriftAction, DriftPolicy, FaultPolicy
from muster.resources.node_health import CauseKind, Lifecycle, Standing, State
from muster.resources.repair import RepairPhase
from muster.sim.virtual import VirtualClock, run_virtual
from tests.operate.cluster import AUTOMATED, Machine, TestCluster, cluster, running
from tests.operate.worlds import World, fault, readings, serving

DAY_S = 86400
OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64
TESTS = {"pair": "sha256:p"}
PROFILES = {name: ProfileTests(tests=("pair",), proves=TESTS) for name in ("bringup", "repair", "stack", "idle")}


def policy(drift: DriftPolicy | None = None, certification: CertificationPolicy | None = None) -> FaultPolicy:
    budget = Budget(max_disrupted="2", max_disrupted_per_domain="100%")
    spec = with_fields(AUTOMATED.spec, drift=drift, certification=certification, budget=budget)
    return with_fields(AUTOMATED, spec=spec)


def repaired(world: World) -> None:
    world.observe(fault(seen=world.now))
    world.settle()
    world.repair(RepairPhase.DONE)
    world.observe(boot="boot-2")


async def edit(c: TestCluster, name: str, **changes: object) -> None:
    """Write into the certificate of a node, as if time had passed."""
    life = await c.life(name)
    assert life is not None
    assert life.certificate is not None
    aged = with_fields(life.certificate, **changes)
    body = {"status": {"lifecycle": {"certificate": to_object(aged)}}}
    await c.api.patch(NODE_HEALTHS, name, body, PatchType.MERGE, subresource="status")


async def baseline(c: TestCluster, digest: str) -> None:
    body = {"apiVersion": API_VERSION, "kind": "Baseline", "metadata": {"name": "train"}, "spec": {"recipe": "x"}}
    if not await c.all(BASELINES):
        await c.api.create(BASELINES, body)
    status = {"status": {"recipeDigest": digest}}
    await c.api.patch(BASELINES, "train", status, PatchType.MERGE, subresource="status")


@dataclass(frozen=True)
class Case:
    name: str
    to_world: Callable[[World], None]
    to_cluster: Callable[[TestCluster], Awaitable[None]]
    """Does the same to node n00."""
    cause: CauseKind
    """Of the step that takes the node out."""
    profile: str
    """That the node must pass; empty: the node works on and the words `shows` are shown."""
    at_work_first: bool = False
    """It works on until its turn comes."""
    still_good: bool = False
    shows: str = ""
    policy: FaultPolicy = field(default_factory=policy)


def change(**what: str) -> Callable[[World], None]:
    return lambda world: world.observe(fp=readings(**what))


def changed(**what: str) -> Callable[[TestCluster], Awaitable[None]]:
    async def do(c: TestCluster) -> None:
        c.machines["n00"].fingerprint = readings(**what)

    return do


async def broken(c: TestCluster) -> None:
    c.machines["n00"].faults = (fault(seen=c.clock.now()),)


async def new_recipe(c: TestCluster) -> None:
    for name in list(c.machines)[1:]:
        await edit(c, name, recipe_digest=NEW)
    await baseline(c, NEW)


async def nearly_expired(c: TestCluster) -> None:
    now = c.clock.now()
    ends = now + timedelta(seconds=7200)
    lives = timedelta(seconds=DAY_S * (1 - SPREAD * jitter("n00")))
    await edit(c, "n00", issued_at=ends - lives, expires_at=ends)


async def expired(c: TestCluster) -> None:
    now = c.clock.now()
    await edit(c, "n00", issued_at=now - timedelta(seconds=DAY_S), expires_at=now)


def recipe(world: World) -> None:
    world.standard = Standard(baselines=(InForce("train", (), NEW),))


def grow_old(seconds: float) -> Callable[[World], None]:
    def do(world: World) -> None:
        ends = world.now + timedelta(seconds=DAY_S)
        certificate = with_fields(world.life.certificate, expires_at=ends)
        world.node = replace(world.node, lifecycle=with_fields(world.life, certificate=certificate))
        world.pass_time(seconds)
        world.observe()

    return do


def changed_test(world: World) -> None:
    world.standard = Standard(PROFILES, TESTS)


async def nothing(c: TestCluster) -> None:
    """The stand-in for the certification controller tells no digests, so the required test is open by itself."""


AGING = policy(certification=CertificationPolicy(max_age_s=DAY_S))
CASES = [
    Case("repair", repaired, broken, CauseKind.FAULT, "repair"),
    Case("identity drift", change(gpu="GPU-2"), changed(gpu="GPU-2"), CauseKind.DRIFT, "bringup"),
    Case("stack drift", change(driver="580.95"), changed(driver="580.95"), CauseKind.DRIFT, "stack", True),
    Case(
        "config drift",
        change(sysctl="60"),
        changed(sysctl="60"),
        CauseKind.DRIFT,
        "",
        shows="Reported only: sysctl.vm.swappiness changed from 1 to 60",
    ),
    Case(
        "config drift that the policy rolls",
        change(sysctl="60"),
        changed(sysctl="60"),
        CauseKind.DRIFT,
        "stack",
        True,
        policy=policy(DriftPolicy(config=DriftAction.ROLL)),
    ),
    Case(
        "new recipe",
        recipe,
        new_recipe,
        CauseKind.DRIFT,
        "",
        shows=f"Certified under no recipe, Baseline train says {'b' * 12}",
    ),
    Case(
        "new recipe that the policy rolls",
        recipe,
        new_recipe,
        CauseKind.DRIFT,
        "stack",
        True,
        policy=policy(DriftPolicy(baseline=DriftAction.ROLL)),
    ),
    Case(
        "changed test",
        changed_test,
        nothing,
        CauseKind.DRIFT,
        "",
        shows="pair",
    ),
    Case("age", grow_old(DAY_S), expired, CauseKind.AGE, "idle", True, policy=AGING),
    Case(
        "age ahead of the expiry",
        grow_old(0.8 * DAY_S),
        nearly_expired,
        CauseKind.AGE,
        "idle",
        True,
        True,
        policy=AGING,
    ),
]
by_name = pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])


def left(life: Lifecycle) -> tuple[State, CauseKind] | None:
    """The last step out of service."""
    entries = life.history
    for before, after in zip(entries[-2::-1], entries[::-1], strict=False):
        if before.state is State.IN_SERVICE and after.state is not State.IN_SERVICE:
            return after.state, after.cause.kind
    return None


@by_name
def test_the_decision(case: Case) -> None:
    world = serving(effective_policy([case.policy], {}))
    case.to_world(world)
    world.settle()
    if not case.profile:
        assert world.life.state is State.IN_SERVICE
        assert world.life.certificate.standing is Standing.VALID
        assert case.shows in world.life.next
        return
    if case.at_work_first:
        assert world.life.state is State.IN_SERVICE
        assert (world.life.certificate.standing is Standing.VALID) is case.still_good
        world.wave = WavePlan(turn=("n1",))
        world.settle()
    assert (world.life.state, world.life.profile) == (State.UNCERTIFIED, case.profile)
    assert left(world.life)[1] is case.cause
    assert (world.life.certificate.standing is Standing.VALID) is case.still_good
    world.certify(recipe_digest=world.standard.of({}, CertificationPolicy()).recipe)
    assert world.life.state is State.IN_SERVICE
    assert world.life.certificate.standing is Standing.VALID


@by_name
def test_the_controller(case: Case) -> None:
    options = {"profiles": PROFILES, "tests": TESTS} if case.name == "changed test" else {}

    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain=f"d{i % 2}") for i in range(4)]
        async with cluster(clock, fleet, case.policy, controller=False) as c, running(c.controller(**options).run()):
            await c.until_settled()
            first = (await c.life("n00")).certificate
            await case.to_cluster(c)
            await clock.sleep(3600)
            await c.until_settled(limit_s=7200)
            life = await c.life("n00")
            assert life.certificate.standing is Standing.VALID
            if not case.profile:
                assert life.certificate.certification == first.certification
                assert case.shows in life.next
                return
            assert left(life)[1] is case.cause
            assert life.certificate.certification != first.certification
            assert life.certificate.profile == case.profile
            asked = {x["metadata"]["name"]: x["spec"] for x in await c.all(CERTIFICATIONS)}
            assert asked[life.certificate.certification].get("recipeDigest", "") == life.certificate.recipe_digest
            for name in ("n01", "n02", "n03"):
                other = await c.life(name)
                assert left(other) is None, "nobody else is concerned"

    run_virtual(story)


def test_a_new_recipe_is_rolled_inside_the_budget_and_named_and_its_digest_ends_in_the_certificates() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain=f"d{i % 2}") for i in range(6)]
        rolling = policy(DriftPolicy(baseline=DriftAction.ROLL))
        async with cluster(clock, fleet, rolling) as c:
            await c.until_settled()
            await baseline(c, OLD)
            most, causes = 0, set()

            async def rolled() -> bool:
                nonlocal most
                lives = [await c.life(m.name) for m in fleet]
                most = max(most, sum(life.held for life in lives))
                causes.update(life.episode.cause.name for life in lives if life.episode is not None)
                return all(life.certificate.recipe_digest == OLD and not life.held for life in lives)

            await c.until(rolled, limit_s=36000)
            assert 1 <= most <= 2
            assert causes == {f"recipe={'a' * 12}"}

    run_virtual(story)


def test_a_recipe_that_breaks_nodes_halts_like_any_roll_out() -> None:
    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain=f"d{i % 3}") for i in range(9)]
        rolling = policy(DriftPolicy(baseline=DriftAction.ROLL))
        rolling = with_fields(rolling, spec=with_fields(rolling.spec, budget=Budget(max_disrupted="3")))
        async with cluster(clock, fleet, rolling) as c:
            await c.until_settled()
            for machine in fleet:
                machine.fails, machine.cured_by = True, None
            await baseline(c, NEW)

            async def halted() -> bool:
                lives = [await c.life(m.name) for m in fleet]
                return any("is halted" in life.next for life in lives)

            await c.until(halted, limit_s=36000)
            await clock.sleep(1800)
            lives = [await c.life(m.name) for m in fleet]
            serving_on = [life for life in lives if life.state is State.IN_SERVICE]
            assert len(serving_on) >= 6
            assert all(f"recipe={'b' * 12}" in life.next for life in serving_on)

    run_virtual(story)


def test_two_baselines_with_different_recipes_say_nothing_and_equal_ones_agree() -> None:
    both = (InForce("a", (), OLD), InForce("b", (), NEW))
    assert Standard(baselines=both).of({}, CertificationPolicy()).recipe == ""
    assert Standard(baselines=(both[0], InForce("b", (), OLD))).of({}, CertificationPolicy()).recipe == OLD
    mine = Standard(baselines=(both[0], InForce("b", (("pool", "x"),), NEW)))
    assert mine.of({}, CertificationPolicy()).recipe == OLD
    assert mine.of({"pool": "x"}, CertificationPolicy()).recipe == ""


ROLLS = effective_policy([policy(DriftPolicy(baseline=DriftAction.ROLL))], {})


def test_two_baselines_that_disagree_are_shown_on_the_node() -> None:
    world = serving(ROLLS)
    world.standard = Standard(baselines=(InForce("a", (), OLD), InForce("b", (), NEW)))
    world.settle()
    assert world.life.certificate.standing is Standing.VALID
    assert "Baselines a, b name different recipes for it; none counts" in world.life.next
    world.standard = Standard(baselines=(InForce("b", (), NEW),))
    world.settle()
    assert world.life.certificate.standing is Standing.GRACE


@pytest.mark.parametrize("after", ["baseline gone", "policy reports"])
def test_a_roll_out_that_is_called_off_gives_back_who_waits_and_finishes_who_is_held(after: str) -> None:
    waits, held = serving(ROLLS), serving(ROLLS)
    held.wave = WavePlan(turn=("n1",))
    for world in (waits, held):
        world.standard = Standard(baselines=(InForce("b", (), NEW),))
        world.settle()
    assert (waits.life.state, held.life.state) == (State.IN_SERVICE, State.UNCERTIFIED)
    for world in (waits, held):
        if after == "baseline gone":
            world.standard = Standard()
        else:
            world.policy = effective_policy([policy()], {})
        world.settle()
    assert waits.life.certificate.standing is Standing.VALID
    assert waits.life.blockers == ()
    assert held.life.state is State.UNCERTIFIED, "its certificate was voided; only its tests bring it back"
    held.certify()
    assert held.life.state is State.IN_SERVICE


def test_a_waiting_renewal_goes_back_to_work_through_the_controller_when_pods_wait_for_gpus() -> None:
    """No partner is idle, so the test cannot begin; then a pod is queued."""

    async def story(clock: VirtualClock) -> None:
        fleet = [Machine(f"n{i:02}", domain=f"d{i % 2}") for i in range(3)]
        async with cluster(clock, fleet, AGING) as c:
            await c.until_settled()
            for name in ("n01", "n02"):
                await c.add_pod(f"train-{name}", name)
            await clock.sleep(30)
            await nearly_expired(c)
            life = await c.until_state("n00", State.UNCERTIFIED)
            await clock.sleep(600)
            life = await c.life("n00")
            assert life.state is State.UNCERTIFIED
            assert life.certificate.standing is Standing.VALID
            await c.add_pod("queued", "")
            life = await c.until_state("n00", State.IN_SERVICE, limit_s=5)
            assert life.history[-1].cause.name == "gave-way"
            assert not (await c.node("n00"))["spec"].get("taints")
            await c.api.delete(PODS, "queued", "work", grace_period_s=0)
            await clock.sleep(300)
            assert (await c.life("n00")).state is State.IN_SERVICE, "it is left alone for a while"

    run_virtual(story)
