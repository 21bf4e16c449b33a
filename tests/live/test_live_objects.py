"""Claims, webhooks, APIServices, CRDs and CronJobs of a release, over states built by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from muster import yamlio
from muster.configure.catalogue import Source, SourceKind
from muster.configure.live.assess import assess
from muster.configure.live.kinds import Conditioned, Crd, EndpointSlice, WebhookConfiguration, Workload, WorkloadKind
from muster.configure.live.read import read
from muster.configure.live.state import Installed, LiveState, OwnedObject, Via
from muster.configure.plan import plan
from muster.kube.api import ResourceType
from muster.resources.baseline import Assertion, AssertionResult
from muster.sim.inprocess import InProcessApi
from muster.sim.store import Store
from muster.sim.virtual import VirtualClock, run_virtual
from tests.live.bed import by_name, component, recipe_of, release_secret, well, workload

PASSED, FAILED, UNKNOWN = AssertionResult.PASSED, AssertionResult.FAILED, AssertionResult.UNKNOWN
NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
RECIPE = recipe_of(component("op"))
NONE: dict[str, Any] = {}


def state(*owned: OwnedObject, **more: Any) -> LiveState:
    helm = Installed(Via.HELM, "op", "op", True, "deployed", "op", "1.2.3", values={}, owned=owned)
    return LiveState(now=NOW, installed=(helm,), **more)


def judge(found: LiveState) -> dict[str, Assertion]:
    return by_name(assess(RECIPE, plan(RECIPE), found))


def named(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, **more.pop("metadata", {})}, **more}


CLAIM = OwnedObject("", "PersistentVolumeClaim", "", "data")


@pytest.mark.parametrize(
    ("phase", "result"), [("Bound", PASSED), ("Pending", FAILED), ("Lost", FAILED), (None, FAILED)]
)
def test_a_claim_must_be_bound(phase: str | None, result: AssertionResult) -> None:
    claims = () if phase is None else (msgspec.convert(named("data", "op", status={"phase": phase}), Conditioned),)
    assert judge(state(CLAIM, claims=claims))["op/PersistentVolumeClaim/op/data"].result is result


SERVICE = OwnedObject("apiregistration.k8s.io", "APIService", "", "v1.example.com")


@pytest.mark.parametrize(
    ("conditions", "result"),
    [
        ([{"type": "Available", "status": "True"}], PASSED),
        ([{"type": "Available", "status": "False", "message": "no endpoints"}], FAILED),
        ([], FAILED),
    ],
)
def test_an_api_service_must_be_available(conditions: list[dict[str, str]], result: AssertionResult) -> None:
    found = msgspec.convert(named("v1.example.com", status={"conditions": conditions}), Conditioned)
    assert judge(state(SERVICE, api_services=(found,)))["op/APIService/v1.example.com"].result is result


HOOK = OwnedObject("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "", "hook")


@pytest.mark.parametrize(
    ("ca", "ready", "unread", "result", "word"),
    [
        ("Y2E=", True, False, PASSED, ""),
        ("Y2E=", None, False, PASSED, ""),
        ("Y2E=", False, False, FAILED, "nothing is ready behind the service op/svc"),
        ("", True, False, FAILED, "no CA bundle"),
        ("Y2E=", True, True, UNKNOWN, "endpoints cannot be told"),
    ],
)
def test_a_webhook_needs_a_service_with_endpoints_and_a_ca(
    ca: str, ready: bool | None, unread: bool, result: AssertionResult, word: str
) -> None:
    client = {"caBundle": ca, "service": {"name": "svc", "namespace": "op"}}
    hook = msgspec.convert(named("hook", webhooks=[{"name": "a.b.c", "clientConfig": client}]), WebhookConfiguration)
    conditions = {} if ready is None else {"ready": ready}
    labels = {"kubernetes.io/service-name": "svc"}
    piece = named("svc-x", "op", metadata={"labels": labels}, endpoints=[{"conditions": conditions}])
    found = state(
        HOOK,
        webhooks={"ValidatingWebhookConfiguration": (hook,)},
        endpoint_slices=() if unread else (msgspec.convert(piece, EndpointSlice),),
        unread={("endpointslices.discovery.k8s.io", "op"): "no"} if unread else {},
    )
    told = judge(found)["op/ValidatingWebhookConfiguration/hook"]
    assert told.result is result
    assert word in told.message


def test_what_is_gone_fails_and_what_cannot_be_read_is_unknown() -> None:
    owned = (CLAIM, SERVICE, HOOK)
    names = [
        "op/APIService/v1.example.com",
        "op/PersistentVolumeClaim/op/data",
        "op/ValidatingWebhookConfiguration/hook",
    ]
    gone = judge(state(*owned))
    assert {name: gone[name].result for name in names} == dict.fromkeys(names, FAILED)
    places = {
        ("apiservices.apiregistration.k8s.io", ""): "no",
        ("persistentvolumeclaims", "op"): "no",
        ("validatingwebhookconfigurations.admissionregistration.k8s.io", ""): "no",
    }
    unread = judge(state(*owned, unread=places))
    assert {name: unread[name].result for name in names} == dict.fromkeys(names, UNKNOWN)


CRD = OwnedObject("apiextensions.k8s.io", "CustomResourceDefinition", "", "as.example.com")


@pytest.mark.parametrize(
    ("conditions", "metadata", "result"),
    [
        ({"Established": "True", "NamesAccepted": "True"}, NONE, PASSED),
        ({"Established": "False", "NamesAccepted": "True"}, NONE, FAILED),
        ({"Established": "True", "NamesAccepted": "False"}, NONE, FAILED),
        ({"Established": "True", "NamesAccepted": "True"}, {"deletionTimestamp": "2026-01-05T07:00:00Z"}, FAILED),
        ({}, NONE, FAILED),
    ],
)
def test_a_crd_must_be_established_and_not_on_its_way_out(
    conditions: dict[str, str], metadata: dict[str, str], result: AssertionResult
) -> None:
    listed = [{"type": kind, "status": status} for kind, status in conditions.items()]
    crd = msgspec.convert(named("as.example.com", metadata=metadata, status={"conditions": listed}), Crd)
    found = judge(state(CRD, crds=(crd,)))
    assert found["op/CustomResourceDefinition/as.example.com"].result is result


def job(name: str, created: str, failed: bool) -> Workload:
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "cron", "uid": "u"}
    status = {"conditions": [{"type": "Failed", "status": "True"}]} if failed else well("Job")
    obj = {**workload("Job", name, "op"), "status": status}
    obj["metadata"] |= {"creationTimestamp": created, "ownerReferences": [owner]}
    return msgspec.convert(obj, Workload, strict=False)


@pytest.mark.parametrize(("last_failed", "result"), [(True, FAILED), (False, PASSED)])
def test_of_a_cron_job_the_newest_run_counts(last_failed: bool, result: AssertionResult) -> None:
    jobs = (
        job("cron-2", "2026-01-05T07:00:00Z", last_failed),
        job("cron-1", "2026-01-05T06:00:00Z", not last_failed),
    )
    found = state(OwnedObject("batch", "CronJob", "", "cron"), workloads={WorkloadKind.JOB: jobs})
    told = judge(found)
    assert told["op/CronJob/op/cron"].result is result
    assert "op/Job/op/cron-1" not in told
    assert judge(replace(found, workloads={})).keys() == {"op/Release/op/op", "op/Version/op/op", "op/Pods/op"}


class Kinds:
    """A source that has these objects by (plural, namespace), and nothing else; `asked` is what was asked for."""

    def __init__(self, objects: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
        self._objects = objects
        self.asked: list[tuple[str, str]] = []

    async def objects(
        self, res: ResourceType, namespace: str, project: Callable[[bytes], Any], label_selector: str = ""
    ) -> tuple[Any, ...]:
        self.asked.append((res.plural, namespace))
        found = [project(msgspec.json.encode(obj)) for obj in self._objects.get((res.plural, namespace), [])]
        return tuple(each for each in found if each is not None)


def test_a_webhook_may_stand_before_a_service_elsewhere_and_those_of_others_are_left_alone() -> None:
    def hook(name: str, namespace: str) -> dict[str, Any]:
        client = {"caBundle": "Y2E=", "service": {"name": "svc", "namespace": namespace}}
        return named(name, webhooks=[{"name": "a.b.c", "clientConfig": client}])

    manifest = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": HOOK.kind, "metadata": {"name": "hook"}}
    labels = {"kubernetes.io/service-name": "svc"}
    source = Kinds(
        {
            ("secrets", ""): [release_secret("op", "op", values={}, manifest=yamlio.dumps(manifest))],
            ("validatingwebhookconfigurations", ""): [hook("hook", "elsewhere"), hook("other", "foreign")],
            ("endpointslices", "elsewhere"): [named("s", "elsewhere", metadata={"labels": labels}, endpoints=[{}])],
        }
    )

    async def main(clock: VirtualClock) -> LiveState:
        return await read(InProcessApi(Store(clock)), RECIPE, plan(RECIPE), now=NOW, source=source)

    assert judge(run_virtual(main))["op/ValidatingWebhookConfiguration/hook"].result is PASSED
    assert [namespace for plural, namespace in source.asked if plural == "endpointslices"] == ["elsewhere"]


@pytest.mark.parametrize(
    ("repository", "shown"),
    [
        ("https://charts.example.com", "helm show crds op --repo https://charts.example.com --version 1.2.3"),
        ("oci://registry.example/charts", "helm show crds oci://registry.example/charts/op --version 1.2.3"),
    ],
)
def test_a_definition_that_is_gone_comes_back_by_its_chart(repository: str, shown: str) -> None:
    source = Source(kind=SourceKind.HELM, repository=repository, chart="op", version="1.2.3")
    recipe = recipe_of(msgspec.structs.replace(component("op"), source=source))
    told = by_name(assess(recipe, plan(recipe), state(CRD)))["op/CustomResourceDefinition/as.example.com"]
    assert told.result is FAILED
    assert shown in told.message
    assert "deploy.sh --all" in told.message
