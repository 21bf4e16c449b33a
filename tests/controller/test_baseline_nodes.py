"""A driver that changed under a certificate: the Baseline tells it, the node controller certifies again by policy."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from muster.configure import lock
from muster.configure.plan import plan
from muster.controller.baseline_compare import ClusterComparison
from muster.controller.baseline_controller import BaselineController
from muster.kube.api import BASELINES, SECRETS, KubeApi
from muster.resources.base import API_VERSION, from_object
from muster.resources.baseline import Baseline, BaselineStatus, Drift, DriftClass
from muster.resources.fault_policy import DriftAction, DriftPolicy
from muster.resources.node_health import Standing, State
from muster.sim.virtual import VirtualClock, run_virtual
from tests.live.bed import NAMESPACES, component, recipe_of, release_secret
from tests.operate.cluster import AUTOMATED, Machine, TestCluster, cluster, running
from tests.operate.worlds import readings

RECIPE = recipe_of(component("op"))
OLD, NEW = "580.65", "580.95"


def machines() -> list[Machine]:
    return [Machine(f"n{i:02}", domain=f"d{i % 2}") for i in range(4)]


async def version() -> str:
    return "v1.34.1"


async def with_baseline(c: TestCluster) -> BaselineController:
    """The recipe is installed, and a Baseline compares every minute."""
    (release,) = plan(RECIPE).releases
    await c.api.create(NAMESPACES, {"metadata": {"name": release.namespace}})
    secret = release_secret(release.name, release.namespace, chart="op", values={})
    await c.api.create(SECRETS, secret, release.namespace)
    spec = {"recipe": lock.write(RECIPE), "intervalS": 60}
    body: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Baseline", "metadata": {"name": "all"}, "spec": spec}
    await c.api.create(BASELINES, body)
    return BaselineController(c.api, c.clock, ClusterComparison(c.api, c.clock, version), tell=c.lines.append)


async def status(api: KubeApi) -> BaselineStatus:
    return from_object(Baseline, await api.get(BASELINES, "all")).status


async def until(c: TestCluster, wanted: set[tuple[str, DriftClass, str]]) -> BaselineStatus:
    async def there() -> bool:
        found = await status(c.api)
        return found.checked_at is not None and told(found) == wanted

    await c.until(there, 6 * 3600)
    return await status(c.api)


def told(found: BaselineStatus) -> set[tuple[str, DriftClass, str]]:
    return {(d.node, d.drift_class, d.path) for d in found.drifts}


CHANGED = ("n03", DriftClass.NODE_STACK, "driver.version")


def drift_of(found: BaselineStatus, path: str) -> Drift:
    return next(d for d in found.drifts if d.path == path)


@pytest.mark.requirement("v2.4/OCR05")
def test_a_changed_driver_is_node_stack_drift_until_the_node_is_certified_again() -> None:
    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines()) as c:
            await c.until_settled()
            before = await c.life("n03")
            assert before is not None
            async with running((await with_baseline(c)).run()):
                first = await until(c, set())
                assert first.result is not None
                assert (first.result.value, first.counts.drifted if first.counts else -1) == ("passed", 0)
                c.machines["n03"].fingerprint = readings(driver=NEW)
                found = await until(c, {CHANGED})
                drift = drift_of(found, "driver.version")
                assert (drift.expected, drift.found) == (OLD, NEW)
                assert "certify node n03 again" in drift.remedy
                assert found.result is not None
                assert found.result.value == "failed"
                # By the policy (roll) the node works on until its turn, and is then certified as it is now.
                last = await until(c, set())
                assert last.result is not None
                assert last.result.value == "passed"
            after = await c.life("n03")
            assert after is not None
            assert after.certificate is not None
            assert before.certificate is not None
            assert after.state is State.IN_SERVICE
            assert after.certificate.standing is Standing.VALID
            assert after.certificate.fingerprint == readings(driver=NEW)
            assert after.certificate.certification != before.certificate.certification
            others = [await c.life(name) for name in sorted(c.machines) if name != "n03"]
            assert all(o and o.certificate and o.certificate.fingerprint == readings() for o in others)

    run_virtual(story)


def test_a_policy_that_only_reports_leaves_the_drift_on_show() -> None:
    spec = with_fields(AUTOMATED.spec, drift=DriftPolicy(stack=DriftAction.REPORT))
    policy = with_fields(AUTOMATED, spec=spec)

    async def story(clock: VirtualClock) -> None:
        async with cluster(clock, machines(), policy) as c:
            await c.until_settled()
            before = await c.life("n03")
            async with running((await with_baseline(c)).run()):
                await until(c, set())
                c.machines["n03"].fingerprint = readings(driver=NEW)
                await until(c, {CHANGED})
                await clock.sleep(2 * 3600)
                assert told(await status(c.api)) == {CHANGED}
            after = await c.life("n03")
            assert before is not None
            assert after is not None
            assert (after.state, after.certificate) == (State.IN_SERVICE, before.certificate)

    run_virtual(story)
