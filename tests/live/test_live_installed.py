"""Releases as Argo CD and Flux tell of them, and what the assertions make of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from muster.configure.live.assess import assess
from muster.configure.live.drift import drift
from muster.configure.live.installed import ArgoApplication, FluxRelease, from_argo, from_flux
from muster.configure.live.kinds import Workload, WorkloadKind
from muster.configure.live.state import LiveState
from muster.configure.plan import plan
from muster.resources.baseline import AssertionResult
from tests.live.bed import component, recipe_of, results, told, well, workload

PASSED, FAILED, UNKNOWN = AssertionResult.PASSED, AssertionResult.FAILED, AssertionResult.UNKNOWN
NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
RECIPE = recipe_of(component("op", values={"a": 1, "b": None}))
PLAN = plan(RECIPE)
VALUES = "a: 1\nb: null\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def application(status: dict[str, Any] | None = None, **source: Any) -> ArgoApplication:
    healthy = {"sync": {"status": "Synced", "revision": "1.2.3"}, "health": {"status": "Healthy"}}
    body = {
        "metadata": {"name": "op-app", "namespace": "argocd"},
        "spec": {
            "source": {
                "repoURL": "https://charts.example.com",
                "chart": "op",
                "targetRevision": "1.2.3",
                "helm": {"releaseName": "op", "values": VALUES},
                **source,
            },
            "destination": {"namespace": "op"},
        },
        "status": healthy | (status or {}),
    }
    return msgspec.convert(body, ArgoApplication, strict=False)


def flux(ready: str = "True", generation: int = 1, **spec: Any) -> FluxRelease:
    body = {
        "metadata": {"name": "op", "namespace": "flux-system", "generation": generation},
        "spec": {
            "releaseName": "op",
            "targetNamespace": "op",
            "chart": {
                "spec": {"chart": "op", "version": "1.2.3", "sourceRef": {"kind": "HelmRepository", "name": "r"}}
            },
            **spec,
        },
        "status": {
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": ready, "reason": "R", "message": "told"}],
            "history": [
                {"name": "op", "namespace": "op", "chartName": "op", "chartVersion": "1.2.2", "version": 1},
                {"name": "op", "namespace": "op", "chartName": "op", "chartVersion": "1.2.3", "version": 2},
            ],
        },
    }
    return msgspec.convert(body, FluxRelease, strict=False)


def judge(*found: ArgoApplication | FluxRelease, url: str = "https://charts.example.com", **more: Any) -> LiveState:
    installed = [
        from_argo(each) if isinstance(each, ArgoApplication) else from_flux(each, {("flux-system", "r"): url})
        for each in found
    ]
    return LiveState(now=NOW, installed=tuple(i for i in installed if i is not None), **more)


@pytest.mark.parametrize("found", [application(), flux()])
def test_a_healthy_release_passes_and_does_not_drift(found: ArgoApplication | FluxRelease) -> None:
    state = judge(found)
    assert set(results(assess(RECIPE, PLAN, state)).values()) == {PASSED}
    assert drift(RECIPE, PLAN, state) == ()


@pytest.mark.parametrize(
    ("status", "result"),
    [
        ({"health": {"status": "Degraded", "message": "why"}}, FAILED),
        ({"health": {"status": "Progressing"}}, FAILED),
        ({"health": {"status": "Missing"}}, FAILED),
        ({"health": {"status": "Unknown"}}, UNKNOWN),
        ({"health": {}}, UNKNOWN),
        ({"sync": {"status": "OutOfSync", "revision": "1.2.3"}}, FAILED),
        ({"sync": {"status": "Unknown", "revision": "1.2.3"}}, UNKNOWN),
        ({"operationState": {"phase": "Failed", "message": "why"}}, FAILED),
        ({"operationState": {"phase": "Succeeded"}}, PASSED),
    ],
)
def test_the_state_of_an_application_is_the_state_of_the_release(
    status: dict[str, Any], result: AssertionResult
) -> None:
    assert results(assess(RECIPE, PLAN, judge(application(status))))["op/Release/op/op"] is result


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"targetRevision": "1.2.4"}, []),  # not synced yet: the state tells, the version that runs is the old one
        ({"chart": "fork"}, [("version", "op", "release op/op")]),
        ({"repoURL": "https://elsewhere.example.com"}, [("version", "op", "release op/op source")]),
        ({"helm": {"releaseName": "op", "values": "a: 2\nb: null\n"}}, [("values", "op", "op:a")]),
        ({"helm": {"releaseName": "op", "valuesObject": {"a": 1}}}, [("values", "op", "op:b")]),
        ({"helm": {"releaseName": "op", "values": "a: ["}}, []),
        ({"repoURL": "oci://charts.example.com/op", "chart": "", "path": ".", "targetRevision": "1.2.3"}, []),
        (
            {"repoURL": "oci://charts.example.com/op", "chart": "", "path": ".", "targetRevision": "1.2.5"},
            [("version", "op", "release op/op")],
        ),
    ],
)
def test_what_an_application_was_given_is_compared(source: dict[str, Any], expected: list[Any]) -> None:
    assert told(drift(RECIPE, PLAN, judge(application(**source)))) == expected


def test_another_version_that_was_synced_is_drift() -> None:
    status = {"sync": {"status": "Synced", "revision": "1.2.9"}}
    found = drift(RECIPE, PLAN, judge(application(status)))
    assert [(d.drift_class.value, d.expected, d.found) for d in found] == [("version", "op 1.2.3", "op 1.2.9")]


def test_a_commit_is_no_version_and_the_parent_is_no_release() -> None:
    status = {"sync": {"status": "Synced", "revision": COMMIT}}
    found = from_argo(application(status, chart="", path="charts/op", targetRevision="main"))
    assert found is not None
    assert (found.chart, found.chart_version, found.source) == ("", "", "")
    assert from_argo(application(chart="", path="applications", helm=None)) is None


def test_the_objects_of_an_application_are_owned_and_labels_tell_where_it_lists_none() -> None:
    broken = {**well("Deployment"), "availableReplicas": 0}
    obj = {**workload("Deployment", "d", "op"), "status": broken}
    obj["metadata"] |= {"generation": 1, "labels": {"app.kubernetes.io/instance": "op"}}
    here = {WorkloadKind.DEPLOYMENT: (msgspec.convert(obj, Workload, strict=False),)}
    resource = {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "op", "name": "d"}
    for status in ({"resources": [resource]}, {}):
        state = judge(application(status), workloads=here)
        assert results(assess(RECIPE, PLAN, state))["op/Deployment/op/d"] is FAILED
    gone = judge(application({"resources": [resource]}))
    assert told(drift(RECIPE, PLAN, gone)) == [("missing", "op", "Deployment op/d")]


def test_scaled_to_zero_is_unknown_where_only_a_label_tells_the_owner() -> None:
    obj = {**workload("Deployment", "d", "op", replicas=0), "status": {"observedGeneration": 1}}
    obj["metadata"] |= {"generation": 1, "labels": {"app.kubernetes.io/instance": "op"}}
    here = {WorkloadKind.DEPLOYMENT: (msgspec.convert(obj, Workload, strict=False),)}
    assert results(assess(RECIPE, PLAN, judge(application(), workloads=here)))["op/Deployment/op/d"] is UNKNOWN


@pytest.mark.parametrize(
    ("found", "release", "version"),
    [
        (flux("False"), FAILED, PASSED),
        (flux("Unknown"), UNKNOWN, PASSED),
        (flux(generation=2), UNKNOWN, PASSED),
        (flux(releaseName="other"), FAILED, None),
    ],
)
def test_the_condition_of_a_helm_release_is_its_state(
    found: FluxRelease, release: AssertionResult, version: AssertionResult | None
) -> None:
    told_ = results(assess(RECIPE, PLAN, judge(found)))
    assert told_["op/Release/op/op"] is release
    assert told_.get("op/Version/op/op") is version


def test_another_repository_of_flux_is_drift() -> None:
    found = drift(RECIPE, PLAN, judge(flux(), url="https://elsewhere.example.com"))
    assert told(found) == [("version", "op", "release op/op source")]


def test_a_missing_view_of_another_deployer_makes_it_unknown() -> None:
    state = judge(flux(), unread={("applications.argoproj.io", ""): "not allowed"})
    assert set(results(assess(RECIPE, PLAN, state)).values()) == {UNKNOWN, PASSED}
    assert results(assess(RECIPE, PLAN, state))["op/Release/op/op"] is UNKNOWN


@pytest.mark.parametrize("found", [application(), flux()])
def test_a_release_that_is_half_removed_is_not_deployed(found: ArgoApplication | FluxRelease) -> None:
    metadata = msgspec.structs.replace(
        found.metadata, deletion_timestamp=NOW, finalizers=("resources-finalizer.example",)
    )
    leaving = msgspec.structs.replace(found, metadata=metadata)
    told_ = {a.name: a for a in assess(RECIPE, PLAN, judge(leaving))}["op/Release/op/op"]
    assert told_.result is FAILED
    assert "being deleted: its finalizers are resources-finalizer.example" in told_.message
    assert ("assertion", "op", "release op/op") in told(drift(RECIPE, PLAN, judge(leaving)))
