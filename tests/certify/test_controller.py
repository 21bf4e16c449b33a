"""The certification controller on a small cluster, all on virtual time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.certify.isolation.plan import WITHDRAWN
from muster.kube.api import CERTIFICATIONS, NODES, PODS, ConflictError, NotFoundError, PatchType
from muster.resources.base import PLAN_ANNOTATION, SYSTEM_NAMESPACE, TEST_DIGESTS_ANNOTATION
from muster.resources.certification import Certification, NodeVerdict, Outcome, Phase, Reason
from muster.sim.virtual import VirtualClock, run_virtual
from tests.certify.bed import Bed, End, Faults, bed, names, report


def verdicts(found: Certification) -> dict[str, str]:
    return {r.name: r.verdict.value for r in found.status.nodes}


def result(found: Certification, name: str) -> Any:
    return next(r for r in found.status.nodes if r.name == name)


def certified(fleet: int, faults: Faults, profile: str = "bringup", **spec: Any) -> Certification:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(fleet), faults) as b:
            await b.certify("c", names(fleet), profile, **spec)
            found = await b.ended("c")
            assert await b.pods() == []
            return found

    return run_virtual(story)


def test_a_healthy_fleet_passes_with_its_numbers() -> None:
    found = certified(4, Faults())
    assert found.status.phase is Phase.SUCCEEDED
    assert set(verdicts(found).values()) == {"Passed"}
    metrics = found.status.nodes[0].metrics
    assert set(metrics) == {
        "gpu-burn.throughput_tflop_per_s",
        "nvlink-loopback.busbw_gb_per_s",
        "pair.busbw_gb_per_s",
        "all-to-all.busbw_gb_per_s",
        "all-reduce.busbw_gb_per_s",
    }
    assert metrics["gpu-burn.throughput_tflop_per_s"] == pytest.approx(650, rel=0.01)
    assert found.status.finished_at is not None
    assert found.status.cost.runs == len(found.status.runs)
    assert found.status.conditions[0].type == "Complete"
    digests = msgspec.json.decode(found.metadata.annotations[TEST_DIGESTS_ANNOTATION])
    run = {"host", "gpu-burn", "nvlink-loopback", "pair", "all-to-all", "all-reduce"}
    assert set(digests) == run | {"pair-net", "pair-rail"}  # with what finds the layer if it must be found


def test_bad_slow_and_a_bad_link_are_told_apart() -> None:
    found = certified(8, Faults(bad=("n02",), slow={"n05": 0.85}, links=(("n01", "n06"),)))
    assert found.status.phase is Phase.FAILED
    failed = {name for name, verdict in verdicts(found).items() if verdict == "Failed"}
    assert failed == {"n02", "n05"}
    assert set(verdicts(found).values()) == {"Passed", "Failed"}
    bad_links = {(link.a, link.b) for link in found.status.links if link.verdict is NodeVerdict.FAILED}
    assert bad_links == {("n01", "n06")}


def test_rounds_follow_each_other_and_pods_never_meet() -> None:
    found = certified(6, Faults(bad=("n00",)))
    runs = [r for r in found.status.runs if r.test != WITHDRAWN]
    assert [r.round for r in runs] == sorted(r.round for r in runs)
    assert len({r.id for r in runs}) == len(runs)


def test_a_node_that_reboots_is_never_passed_and_the_others_are() -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(5), Faults()) as b:
            await b.certify("c", names(5), "stack")
            await clock.sleep(70)
            await b.set_node("n03", True, boot="boot-2")
            return await b.ended("c")

    found = run_virtual(story)
    assert verdicts(found)["n03"] == "Undetermined"
    assert "rebooted" in result(found, "n03").message
    assert [v for n, v in verdicts(found).items() if n != "n03"] == ["Passed"] * 4
    assert found.status.phase is Phase.FAILED


def test_a_fingerprint_that_changes_takes_the_node_out() -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(4), Faults()) as b:
            await b.certify("c", names(4), "stack")
            await clock.sleep(40)
            await b.publish("n01", driver="580.95")
            return await b.ended("c")

    found = run_virtual(story)
    assert verdicts(found) == {"n00": "Passed", "n01": "Undetermined", "n02": "Passed", "n03": "Passed"}
    assert "fingerprint" in result(found, "n01").message


def test_a_change_after_the_last_round_still_counts() -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(3), Faults()) as b:
            await b.certify("c", names(3), "idle")

            async def last_run_pods() -> bool:
                found = await b.certification("c")
                return found.status.round == 3 and any(p["status"].get("phase") == "Running" for p in await b.pods())

            await b.until(last_run_pods)

            async def recorded() -> bool:
                status = (await b.certification("c")).status
                return (status.phase is Phase.RUNNING and not await b.pods()) or status.phase is not Phase.RUNNING

            b.behaviour = Faults()
            await b.publish("n02", driver="other")
            await b.until(recorded)
            return await b.ended("c")

    found = run_virtual(story)
    assert verdicts(found)["n02"] == "Undetermined"


def test_a_node_that_vanishes_is_named_with_the_reason() -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(5), Faults()) as b:
            await b.certify("c", names(5), "stack")
            await clock.sleep(10)
            b.silent.add("n04")
            await b.api.delete(NODES, "n04")
            found = await b.ended("c")
            assert await b.pods() == []
            return found

    found = run_virtual(story)
    assert verdicts(found)["n04"] == "Untested"
    assert "vanished" in result(found, "n04").message
    assert [v for n, v in verdicts(found).items() if n != "n04"] == ["Passed"] * 4


def test_nodes_that_cannot_be_tested_are_listed_with_the_reason() -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(4), Faults()) as b:
            await b.add_node("small", gpus=4)
            await b.add_node("empty", gpus=0)
            await b.set_node("n03", False)
            await clock.sleep(5)
            await b.certify("c", [*names(4), "small", "empty", "ghost"], "idle")
            return await b.ended("c")

    found = run_virtual(story)
    assert verdicts(found) == {
        "empty": "Untested",
        "ghost": "Untested",
        "n00": "Passed",
        "n01": "Passed",
        "n02": "Passed",
        "n03": "Untested",
        "small": "Untested",
    }
    assert all(result(found, n).message for n in ("empty", "ghost", "n03", "small"))


@pytest.mark.parametrize(
    ("name", "nodes", "profile", "word"),
    [
        ("c", ["n00"], "no-such-profile", "profile"),
        ("c", ["ghost"], "repair", "Untested"),
        ("c" * 64, ["n00"], "repair", "63"),
    ],
)
def test_what_cannot_be_carried_out_is_aborted_with_a_sentence(
    name: str, nodes: list[str], profile: str, word: str
) -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(2), Faults()) as b:
            await b.certify(name, nodes, profile)
            return await b.ended(name)

    found = run_virtual(story)
    assert found.status.phase is Phase.ABORTED
    assert word in found.status.message


@pytest.mark.parametrize("edit", ["plan", "runs", "nothing"])
def test_a_plan_or_runs_that_somebody_edited_end_in_a_sentence(edit: str) -> None:
    async def story(clock: VirtualClock) -> Certification:
        b = Bed(clock, names(3), Faults())
        await b.install()
        await b.certify("c", names(3))
        run = {"id": "x", "round": 7, "test": "host", "nodes": ["n00"], "outcome": "PASS"}
        status = {"status": {"phase": "Running", "runs": [run]}}
        if edit != "nothing":
            plan = {"plan": "{", "runs": _plan(3)}[edit]
            await b.api.patch(
                CERTIFICATIONS, "c", {"metadata": {"annotations": {PLAN_ANNOTATION: plan}}}, PatchType.MERGE
            )
        await b.api.patch(CERTIFICATIONS, "c", status, PatchType.MERGE, subresource="status")
        from muster.certify.controller import CertificationController
        from tests.certify.bed import running

        async with running(b.kubelets(), CertificationController(b.api, clock).run()):
            return await b.ended("c", 60)

    found = run_virtual(story)
    assert found.status.phase is Phase.ABORTED
    assert len(found.status.message) > 20


def _plan(count: int) -> str:
    from muster.certify.catalogue import profile
    from muster.certify.grouping import make_plan
    from muster.certify.nodes import NodeFacts
    from muster.resources.certification import CertificationSpec

    spec = CertificationSpec(nodes=tuple(names(count)), profile="repair")
    plan = make_plan("c", spec, profile("repair"), {n: NodeFacts(name=n, gpus=8) for n in names(count)}, {})
    return msgspec.json.encode(plan).decode()


def test_a_budget_beyond_all_time_is_no_limit() -> None:
    found = certified(3, Faults(), "repair", budget={"maxWallMinutes": 1e300, "maxNodeMinutes": 1e300})
    assert found.status.phase is Phase.SUCCEEDED


def test_the_deadline_ends_it_without_blame() -> None:
    def never(spec: dict[str, Any], node: str) -> End:
        return report(node, True) if spec["test"] == "host" else End(phase=None)

    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(3), never) as b:
            await b.certify("c", names(3), "repair", budget={"maxWallMinutes": 4.0})
            found = await b.ended("c")
            assert await b.pods() == []
            return found

    found = run_virtual(story)
    assert set(verdicts(found).values()) == {"Undetermined"}
    assert {r.reason for r in found.status.nodes} == {Reason.BUDGET}
    assert found.status.cost.wall_minutes < 6


def test_a_pod_that_does_not_start_blocks_visibly_and_blames_nobody() -> None:
    def stuck(spec: dict[str, Any], node: str) -> End:
        return End(reason="stuck") if node == "n01" else Faults()(spec, node)

    async def story(clock: VirtualClock) -> tuple[str, Certification]:
        async with bed(clock, names(4), stuck) as b:
            await b.certify("c", names(4), "idle")
            await clock.sleep(90)
            blocked = (await b.certification("c")).status.blocked
            return blocked, await b.ended("c")

    blocked, found = run_virtual(story)
    assert "n01" in blocked
    assert verdicts(found) == {"n00": "Passed", "n01": "Untested", "n02": "Passed", "n03": "Passed"}
    assert result(found, "n01").reason is Reason.SCHEDULING
    assert found.status.blocked == ""


def test_a_partner_that_took_other_work_is_let_go() -> None:
    def busy(spec: dict[str, Any], node: str) -> End:
        return (
            End(reason=f"OutOf{'nvidia.com/gpu'}", message="no GPU free") if node == "n01" else Faults()(spec, node)
        )

    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(3), busy) as b:
            await b.certify("c", ["n00"], "repair", partners=["n01", "n02"])
            return await b.ended("c")

    found = run_virtual(story)
    assert len([r for r in found.status.runs if "n01" in r.nodes and r.test != WITHDRAWN]) <= 1
    assert all(r.outcome is not Outcome.FAIL for r in found.status.runs)
    assert verdicts(found) == {"n00": "Passed"}


def test_deletion_while_it_runs_removes_its_pods() -> None:
    async def story(clock: VirtualClock) -> None:
        async with bed(clock, names(4), Faults()) as b:
            await b.certify("c", names(4))
            await clock.sleep(15)
            assert await b.pods() != []
            await b.api.delete(CERTIFICATIONS, "c")
            await clock.sleep(15)
            assert await b.pods() == []
            created = len(b.created)
            await clock.sleep(600)
            assert len(b.created) == created

    run_virtual(story)


def test_a_certification_of_the_same_name_starts_anew() -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(4), Faults()) as b:
            await b.certify("c", names(4))
            await clock.sleep(15)
            await b.api.delete(CERTIFICATIONS, "c")
            await b.certify("c", names(3))
            return await b.ended("c")

    found = run_virtual(story)
    assert verdicts(found) == {"n00": "Passed", "n01": "Passed", "n02": "Passed"}


def test_certifications_that_share_a_node_wait_for_each_other_and_others_do_not() -> None:
    async def story(clock: VirtualClock) -> tuple[str, list[Certification]]:
        async with bed(clock, names(7), Faults()) as b:
            await b.certify("a", names(3))
            await clock.sleep(2)
            await b.certify("b", ["n02", "n03", "n04"])
            await b.certify("c", ["n05", "n06"])
            await clock.sleep(20)
            waiting = (await b.certification("b")).status.blocked
            assert (await b.certification("c")).status.phase is Phase.RUNNING
            return waiting, [await b.ended(n) for n in "abc"]

    waiting, found = run_virtual(story)
    assert waiting == "Waits for n02, which certification a uses."
    assert [c.status.phase for c in found] == [Phase.SUCCEEDED] * 3
    a, b, c = (x.status for x in found)
    assert b.started_at >= a.finished_at
    assert c.started_at < a.finished_at


def test_a_single_node_without_a_partner_is_not_passed() -> None:
    found = certified(1, Faults(), "repair")
    assert verdicts(found) == {"n00": "Undetermined"}
    assert result(found, "n00").reason is Reason.NO_PARTNER


def test_a_slow_node_tested_alone_is_found_by_what_equals_reached() -> None:
    """The certificates of nodes in service are the peers of a node that is tested alone."""

    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(5), Faults(slow={"n00": 0.85})) as b:
            for name in names(5)[1:]:
                await _give_certificate(b, name)
            await clock.sleep(5)
            await b.certify("c", ["n00"], "repair", partners=["n01", "n02"])
            return await b.ended("c")

    found = run_virtual(story)
    assert verdicts(found) == {"n00": "Failed"}
    assert result(found, "n00").reason is Reason.COMPUTE


async def _give_certificate(b: Bed, name: str) -> None:
    from muster.kube.api import NODE_HEALTHS

    health = await b.api.get(NODE_HEALTHS, name)
    observed = health["status"]["observed"]
    at = b.clock.now().isoformat()
    certificate = {
        "nodeUid": observed["nodeUid"],
        "fingerprint": observed["fingerprint"],
        "profile": "bringup",
        "tests": [{"name": "gpu-burn", "digest": "d", "metrics": {"gpu-burn.throughput_tflop_per_s": 650.0}}],
        "certification": "old",
        "issuedAt": at,
    }
    lifecycle = {"state": "InService", "since": at, "certificate": certificate}
    await b.api.patch(NODE_HEALTHS, name, {"status": {"lifecycle": lifecycle}}, PatchType.MERGE, subresource="status")


def test_a_stranger_who_deletes_test_pods_blames_nobody() -> None:
    async def story(clock: VirtualClock) -> Certification:
        async with bed(clock, names(4), Faults()) as b:
            await b.certify("c", names(4), "idle")
            for _ in range(2):
                await clock.sleep(9)
                for pod in (await b.pods())[:2]:
                    try:
                        await b.api.delete(PODS, pod["metadata"]["name"], SYSTEM_NAMESPACE)
                    except (NotFoundError, ConflictError):
                        continue
            return await b.ended("c")

    found = run_virtual(story)
    assert set(verdicts(found).values()) == {"Passed"}
    assert any(r.outcome is Outcome.UNKNOWN for r in found.status.runs)


def test_the_same_cluster_gives_the_same_status() -> None:
    faults = Faults(bad=("n01",), links=(("n02", "n04"),))
    assert certified(6, faults).status == certified(6, faults).status
