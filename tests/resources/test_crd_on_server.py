"""The CRDs on the simulated API server: accepted as they are, and each rule refuses what it is there for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.kube.api import (
    CERTIFICATIONS,
    CRDS,
    FAULT_POLICIES,
    NODE_HEALTHS,
    REPAIRS,
    InvalidError,
    Object,
    PatchType,
    ResourceType,
)
from muster.resources import crd
from muster.resources.certification import CertificationBudget
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual


def with_api(use: Callable[[InProcessApi], Awaitable[Any]]) -> Any:
    async def main(clock: VirtualClock) -> Any:
        api = InProcessApi(Store(clock))
        for manifest in crd.manifests():
            await api.create(CRDS, manifest)
        return await use(api)

    return run_virtual(main)


def of(res: ResourceType, name: str, spec: dict[str, Any]) -> Object:
    return {"apiVersion": res.api_version, "kind": res.kind, "metadata": {"name": name}, "spec": spec}


CERTIFICATION = of(CERTIFICATIONS, "c", {"nodes": ["a", "b"], "profile": "bringup"})
REPAIR = of(
    REPAIRS, "r", {"nodeName": "a", "nodeUid": "u", "episode": "e", "rung": "reboot", "provider": "simulated-cloud"}
)
RULE = {"name": "one", "when": "fault.severity == 'fatal'", "disposition": "hold"}


def refused(res: ResourceType, obj: Object) -> str:
    async def use(api: InProcessApi) -> str:
        with pytest.raises(InvalidError) as caught:
            await api.create(res, obj)
        return str(caught.value)

    return with_api(use)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("res", "obj"),
    [
        (CERTIFICATIONS, CERTIFICATION),
        (REPAIRS, REPAIR),
        (FAULT_POLICIES, of(FAULT_POLICIES, "p", {"rules": [RULE], "budget": {"maxDisrupted": "6"}})),
        (NODE_HEALTHS, {**of(NODE_HEALTHS, "n", {})}),
    ],
    ids=lambda value: value.kind if isinstance(value, ResourceType) else "",
)
def test_a_good_object_is_accepted(res: ResourceType, obj: Object) -> None:
    async def use(api: InProcessApi) -> Object:
        return await api.create(res, obj)

    assert with_api(use)["metadata"]["name"] == obj["metadata"]["name"]


def test_defaults_are_filled_in() -> None:
    async def use(api: InProcessApi) -> Object:
        return await api.create(CERTIFICATIONS, CERTIFICATION)

    spec = with_api(use)["spec"]
    assert spec["purpose"] == "manual"
    assert spec["budget"]["maxRounds"] == CertificationBudget().max_rounds


def test_a_certification_can_be_changed_while_pending_only() -> None:
    async def use(api: InProcessApi) -> None:
        await api.create(CERTIFICATIONS, CERTIFICATION)
        change = {"spec": {"profile": "stack"}}
        await api.patch(CERTIFICATIONS, "c", change, PatchType.MERGE)
        phase = {"status": {"phase": "Pending"}}
        await api.patch(CERTIFICATIONS, "c", phase, PatchType.MERGE, subresource="status")
        await api.patch(CERTIFICATIONS, "c", {"spec": {"profile": "idle"}}, PatchType.MERGE)
        phase = {"status": {"phase": "Running"}}
        await api.patch(CERTIFICATIONS, "c", phase, PatchType.MERGE, subresource="status")
        with pytest.raises(InvalidError, match="cannot change once it is running"):
            await api.patch(CERTIFICATIONS, "c", change, PatchType.MERGE)
        await api.patch(CERTIFICATIONS, "c", {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE)

    with_api(use)


def test_a_repair_never_changes_but_its_status_does() -> None:
    async def use(api: InProcessApi) -> None:
        await api.create(REPAIRS, REPAIR)
        await api.patch(REPAIRS, "r", {"status": {"phase": "Running"}}, PatchType.MERGE, subresource="status")
        with pytest.raises(InvalidError, match="a repair never changes"):
            await api.patch(REPAIRS, "r", {"spec": {"rung": "replace"}}, PatchType.MERGE)

    with_api(use)


@pytest.mark.parametrize(
    ("budget", "word"),
    [
        ({"maxRounds": 0}, "maxRounds"),
        ({"maxRuns": -1}, "maxRuns"),
        ({"maxWallMinutes": 0}, "maxWallMinutes"),
        ({"maxNodeMinutes": 0.0}, "maxNodeMinutes"),
        ({"maxFalseBlame": 0}, "maxFalseBlame"),
        ({"maxFalseBlame": 1.5}, "maxFalseBlame"),
    ],
)
def test_a_certification_budget_is_positive(budget: dict[str, Any], word: str) -> None:
    spec = {**CERTIFICATION["spec"], "budget": budget}
    assert word in refused(CERTIFICATIONS, of(CERTIFICATIONS, "c", spec))


@pytest.mark.parametrize("nodes", [[], ["a", "a"], [""]])
def test_a_certification_names_each_node_once(nodes: list[str]) -> None:
    assert "nodes" in refused(CERTIFICATIONS, of(CERTIFICATIONS, "c", {"nodes": nodes, "profile": "bringup"}))


@pytest.mark.parametrize("share", ["", "abc", "-1", "101%", "5.5%", "10 %", "1234567"])
def test_a_share_is_a_number_or_a_percentage(share: str) -> None:
    assert "maxDisrupted" in refused(FAULT_POLICIES, of(FAULT_POLICIES, "p", {"budget": {"maxDisrupted": share}}))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([RULE, RULE], "same name"),
        ([{**RULE, "when": ""}], "when"),
        ([{**RULE, "name": ""}], "name"),
        ([{**RULE, "disposition": "explode"}], "disposition"),
        ([{**RULE, "ladder": [{"rung": "prayer"}]}], "rung"),
    ],
)
def test_bad_rules_are_refused(rules: list[Any], words: str) -> None:
    assert words in refused(FAULT_POLICIES, of(FAULT_POLICIES, "p", {"rules": rules}))


def test_a_decision_has_an_id_and_a_person() -> None:
    spec = {"decision": {"id": "", "verb": "release", "by": ""}}
    message = refused(NODE_HEALTHS, of(NODE_HEALTHS, "n", spec))
    assert "spec.decision.id" in message
    assert "spec.decision.by" in message
