"""The chart as Helm renders it: every combination that matters, its definitions, and what it refuses."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from muster import __version__, yamlio
from muster.resources.base import (
    HOLD_TAINT,
    SYSTEM_NAMESPACE,
)
from muster.resources.crd import manifests, text
from muster.resources.crd_tables import KINDS
from tests.deploy.chart import CHART, NAMESPACE, OBSERVERS, RELEASE, REQUIRED, engine, merged, of_kind, one, render
from tests.deploy.values import VALUES

pytestmark = pytest.mark.full

ROOT = CHART.parents[1]
CLUSTER_SCOPED = {
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


# What is rendered


@pytest.mark.parametrize("name", sorted(VALUES))
def test_helm_finds_nothing_to_complain_of(name: str) -> None:
    report = engine().lint(CHART, merged(REQUIRED, VALUES[name]), strict=True, namespace=NAMESPACE)
    # Helm recommends an icon; there is none.
    found = [m for m in report["messages"] if "icon is recommended" not in str(m)]
    assert found == []
    assert report["errors"] == []


def test_the_versions_are_those_of_the_project() -> None:
    about = yamlio.load(CHART / "Chart.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert about["appVersion"] == project["version"] == __version__
    assert about["version"] == re.sub(r"\.dev(\d+)$", r"-dev\1", project["version"])
    assert f"ARG VERSION={project['version']}\n" in (ROOT / "Dockerfile").read_text()


def test_every_object_is_where_it_belongs(objects: list[dict[str, Any]]) -> None:
    for obj in objects:
        namespace = obj["metadata"].get("namespace")
        if obj["kind"] in CLUSTER_SCOPED:
            assert namespace is None, obj
        elif obj["metadata"]["name"] == "muster-controller-events":
            assert namespace == "default"
        else:
            assert namespace == SYSTEM_NAMESPACE, obj


def test_every_object_has_a_name_of_its_own_and_says_whose_it_is(objects: list[dict[str, Any]]) -> None:
    keys = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(keys) == len(set(keys))
    for obj in objects:
        name = obj["metadata"]["name"]
        if obj["kind"] == "CustomResourceDefinition":
            assert name.endswith(".muster.dev")
            continue
        assert name == SYSTEM_NAMESPACE or name.split("-")[0] == "muster"
        labels = obj["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "muster"
        assert labels["app.kubernetes.io/instance"] == RELEASE
        assert labels["app.kubernetes.io/version"] == __version__


def _workloads(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*of_kind(objects, "Deployment"), *of_kind(objects, "DaemonSet")]


def test_selectors_match_their_pods_and_no_others(objects: list[dict[str, Any]]) -> None:
    pods = {w["metadata"]["name"]: w["spec"]["template"]["metadata"]["labels"] for w in _workloads(objects)}
    assert pods
    selecting = [o for o in objects if o["kind"] in ("Deployment", "DaemonSet", "PodDisruptionBudget", "PodMonitor")]
    for obj in selecting:
        wanted = obj["spec"]["selector"]["matchLabels"]
        chosen = [name for name, labels in pods.items() if wanted.items() <= labels.items()]
        assert chosen == [obj["metadata"]["name"]]
        assert not {"app.kubernetes.io/version", "helm.sh/chart"} & set(wanted), "selectors cannot change"


def test_workloads_are_careful(objects: list[dict[str, Any]]) -> None:
    accounts = {o["metadata"]["name"] for o in of_kind(objects, "ServiceAccount")}
    classes = {o["metadata"]["name"] for o in of_kind(objects, "PriorityClass")}
    classes |= {"system-node-critical", "system-cluster-critical"}
    for workload in _workloads(objects):
        pod = workload["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] in accounts
        assert pod["priorityClassName"] in classes
        assert pod["terminationGracePeriodSeconds"] >= 10
        (container,) = pod["containers"]
        assert re.fullmatch(r"registry\.example/muster(:[0-9][\w.]*|@sha256:[0-9a-f]{64})", container["image"])
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        (port,) = container["ports"]
        assert port["name"] == "metrics"
        assert f"--listen=:{port['containerPort']}" in container["args"]
        for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
            assert container[probe]["httpGet"] == {"path": path, "port": "metrics"}
        mounts = {m["name"] for m in container.get("volumeMounts", [])}
        assert mounts == {v["name"] for v in pod.get("volumes", [])}


def test_the_controller_is_nobody(objects: list[dict[str, Any]]) -> None:
    for deployment in of_kind(objects, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["securityContext"].pop("fsGroup", 65532) == 65532  # the disk of a history
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert pod["containers"][0]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        # Nothing of the node: configuration, secrets and a disk that somebody named, a folder for the audit log.
        allowed = {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
        assert all(v.keys() - {"name"} <= allowed for v in pod.get("volumes", []))
        mounts = pod["containers"][0].get("volumeMounts", [])
        assert [m["name"] for m in mounts if not m.get("readOnly")] in ([], ["audit"], ["history"])
        tolerated = [t.get("key") for t in pod.get("tolerations", [])]
        assert HOLD_TAINT not in tolerated
        assert None not in tolerated, "it would run on the nodes that it holds"


@pytest.mark.requirement("companion/BFX04")
def test_the_agent_runs_on_every_gpu_node_and_reads_only(objects: list[dict[str, Any]]) -> None:
    for daemons in of_kind(objects, "DaemonSet"):
        pod = daemons["spec"]["template"]["spec"]
        assert pod["tolerations"] == [{"operator": "Exists"}]
        mounts = pod["containers"][0]["volumeMounts"]
        assert [m["name"] for m in mounts if not m.get("readOnly")] == ["state"]
        paths = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
        little = {"proc": "/proc", "sys": "/sys", "os-release": "/etc/os-release"}
        expected = {"host": "/"} if "host" in paths else little
        assert paths | {"kernel-log": ""} == {**expected, "state": "/var/lib/muster", "kernel-log": ""}
        others = [v for v in pod["volumes"] if "hostPath" not in v]
        assert all(v.keys() in ({"name", "configMap"}, {"name", "secret"}) for v in others)
        env = {
            e["name"]: e.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            for e in pod["containers"][0]["env"]
        }
        assert env.pop("NODE_NAME") == "spec.nodeName"
        assert sorted(env) == (
            ["NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES"] if "runtimeClassName" in pod else []
        )


def test_the_agent_sees_the_file_system_of_the_node_unless_it_must_not() -> None:
    def volumes(values: Mapping[str, Any]) -> set[str]:
        pod = one(render(values), "DaemonSet")["spec"]["template"]["spec"]
        return {v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}

    assert "/" in volumes({})
    assert volumes(VALUES["little-of-the-host"]) & {"/", "/proc"} == {"/proc"}


def test_the_agents_privileges_follow_from_its_log() -> None:
    def security(values: Mapping[str, Any]) -> Any:
        daemons = one(render(values), "DaemonSet")
        return daemons["spec"]["template"]["spec"]["containers"][0]["securityContext"]

    assert security({})["privileged"] is True
    device = security(VALUES["device-without-privilege"])
    assert device["capabilities"] == {"drop": ["ALL"], "add": ["SYSLOG"]}
    file = security(VALUES["log-file"])
    assert file["capabilities"] == {"drop": ["ALL"]}
    assert file["allowPrivilegeEscalation"] is device["allowPrivilegeEscalation"] is False


def test_what_the_programs_read_is_a_file_that_they_understand(tmp_path: Path) -> None:
    from muster.agent.config import load as load_agent
    from muster.operate.outputs.config import load as load_outputs
    from muster.operate.providers.config import load_config as load_providers

    objects = render(VALUES["everything"])
    controller = one(objects, "ConfigMap", "muster-controller")["data"]
    agent = one(objects, "ConfigMap", "muster-agent")["data"]
    for name, content in {**controller, **agent}.items():
        (tmp_path / name).write_text(content)
    assert load_outputs(tmp_path / "outputs.yaml").cluster == "east"
    assert [p.name for p in load_providers(tmp_path / "providers.yaml").providers] == ["ours"]
    assert load_agent(tmp_path / "agent.yaml").gpu.interval_s == 60


def test_a_log_file_is_read_through_its_folder() -> None:
    pod = one(render(VALUES["log-file"]), "DaemonSet")["spec"]["template"]["spec"]
    volume = next(v for v in pod["volumes"] if v["name"] == "kernel-log")
    assert volume["hostPath"] == {"path": "/var/log/muster", "type": "Directory"}
    assert "--kernel-log=/kernel-log/kernel.json" in pod["containers"][0]["args"]


@pytest.mark.parametrize("name", sorted(VALUES))
def test_the_programs_know_their_arguments(name: str) -> None:
    from muster.cli.agent import run as agent
    from muster.cli.controller import run as controller

    commands = {"controller": controller, "agent": agent}
    for workload in _workloads(render(VALUES[name])):
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        group, verb, *arguments = container["args"]
        assert (group, verb) == (container["name"], "run")
        context = commands[group].make_context("run", arguments, resilient_parsing=True)
        assert context.args == []
        parsed = {o for parameter in commands[group].params for o in parameter.opts}
        assert {a.partition("=")[0] for a in arguments} <= parsed


def test_only_observers_hold_nothing() -> None:
    objects = render(OBSERVERS)
    assert of_kind(objects, "Deployment") == []
    assert [o["metadata"]["name"] for o in of_kind(objects, "ClusterRole")] == ["muster-agent"]
    assert not any("controller" in o["metadata"]["name"] for o in objects)


def test_an_empty_node_selector_value_takes_the_label_out() -> None:
    assert "nodeSelector" not in one(render(VALUES["every-node"]), "DaemonSet")["spec"]["template"]["spec"]


# Definitions


def test_the_definitions_in_the_chart_are_those_of_the_models() -> None:
    """Run `python -m muster.resources.crd deploy/chart/files/crds` when this fails."""
    folder = CHART / "files" / "crds"
    assert {f.name: f.read_text() for f in folder.iterdir()} == {f"{info.plural}.yaml": text(info) for info in KINDS}


def test_definitions_stay_when_the_release_goes() -> None:
    found = {o["metadata"]["name"]: o for o in of_kind(render(), "CustomResourceDefinition")}
    for manifest in manifests():
        annotations = {"helm.sh/resource-policy": "keep"}
        kept = {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}
        assert found.pop(manifest["metadata"]["name"]) == kept
    assert found == {}
    assert of_kind(render(VALUES["no-crds"]), "CustomResourceDefinition") == []


def test_a_history_gets_its_address_from_a_secret_and_its_disk_from_a_claim() -> None:
    values = {"controller": {"replicas": 1, "history": {"secret": "database", "claim": "disk", "retentionDays": 30}}}
    spec = one(render(values), "Deployment", "muster-controller")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert "--history-retention=30" in container["args"]
    (address,) = [e for e in container["env"] if e["name"] == "MUSTER_HISTORY_URL"]
    assert address["valueFrom"] == {"secretKeyRef": {"name": "database", "key": "url"}}
    assert {"name": "history", "mountPath": "/var/lib/muster"} in container["volumeMounts"]
    assert {"name": "history", "persistentVolumeClaim": {"claimName": "disk"}} in spec["volumes"]
    assert spec["securityContext"]["fsGroup"] == 65532, "else nobody but root could write to the disk"


# What is refused


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": {"repository": ""}}, "Set image.repository"),
        ({"controller": {"testImage": ""}}, "set controller.testImage"),
        ({"controller": {"enabled": False}, "agent": {"enabled": False}}, "Neither the controller nor the agent"),
        ({**OBSERVERS, "holdNewNodes": {"enabled": True}}, "holdNewNodes needs the controller"),
        ({"holdNewNodes": {"enabled": True}}, "Kubernetes 1.36 or newer"),
        ({"policy": {"priority": 1}}, "Kubernetes does not know FaultPolicy yet"),
        ({"controller": {"replica": 2}}, "additional properties 'replica' not allowed"),
        ({"controller": {"replicas": 0}}, "at '/controller/replicas': minimum: got 0, want 1"),
        ({"controller": {"port": 80}}, "at '/controller/port'"),
        ({"agent": {"maxUnavailable": "0%"}}, "at '/agent/maxUnavailable'"),
        ({"agent": {"kernelLog": {"path": "kmsg"}}}, "at '/agent/kernelLog/path'"),
        ({"agent": {"stateDir": "/"}}, "at '/agent/stateDir'"),
        ({"controller": {"history": {"claim": "disk"}}}, "set both, or neither"),
        ({"controller": {"history": {"claim": "disk", "secret": "url"}}}, "set controller.replicas=1"),
        ({"controller": {"history": {"url": "sqlite:///x"}}}, "additional properties 'url' not allowed"),
        ({"image": {"tag": "latest"}}, "at '/image/tag'"),
        ({"image": {"digest": "sha256:1"}}, "at '/image/digest'"),
        ({"image": {"repository": "https://registry.example/Muster"}}, "at '/image/repository'"),
        ({"logFormat": "xml"}, "value must be one of 'text', 'json'"),
        ({"agent": {"resources": {"limits": {"memory": "much"}}}}, "at '/agent/resources/limits/memory'"),
    ],
)
def test_wrong_values_are_refused_in_words(values: dict[str, Any], said: str) -> None:
    with pytest.raises(engine().HelmError) as refused:
        render(values)
    assert said in str(refused.value)


def test_another_namespace_is_refused() -> None:
    with pytest.raises(engine().HelmError, match="install with --namespace muster-system instead of elsewhere"):
        render({}, namespace="elsewhere")
