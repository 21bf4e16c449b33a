"""The commands of UNINSTALL.md, typed into a real kubectl and Helm against a real API server.

No controller of a deployer runs there, so objects have no finalizers that only one could take away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.configure.bundles.build import Deployer
from muster.configure.catalogue import Crds, Gate
from muster.configure.plan import CrdPolicy, Plan, plan
from muster.configure.render import argocd, flux
from muster.configure.render.removal import removal_page
from tests.bundle.cases import GIT
from tests.bundle.made_up import FILES, component, recipe_with
from tests.bundle.shell import Shell
from tests.bundle.stand_in import crd
from tests.controlplane.plugin import RealCluster

NAMESPACE = "removal"
KINDS = ("removalwidgets.stand-in.example", "removalgizmos.stand-in.example")


def small() -> Plan:
    return plan(
        recipe_with(
            component("removal-crds", namespace=NAMESPACE, crds=Crds(owned=True, only=True)),
            component(
                "removal-operator",
                namespace=NAMESPACE,
                depends_on=("removal-crds",),
                crds=Crds(owned=True, provides=KINDS),
                post_manifests=FILES,
                gate=Gate.DEPLOYMENTS_AVAILABLE,
            ),
        )
    )


@pytest.fixture
def shell(tmp_path: Path, helm: Path, real_cluster: RealCluster, deployer_crds: list[Path]) -> Shell:
    shell = Shell(tmp_path, helm.parent, real_cluster.kubeconfig)
    for path in deployer_crds:
        shell.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))
    for name in ("argocd", "flux-system", NAMESPACE):
        shell.run("kubectl", "create", "namespace", name)
    namespaced = crd("removalwidgets", "RemovalWidget")
    everywhere = crd("removalgizmos", "RemovalGizmo")
    everywhere["spec"]["scope"] = "Cluster"
    shell.kubectl("apply", "-f", "-", text=yamlio.dumps_all([namespaced, everywhere]))
    shell.kubectl("wait", "--for=condition=Established", *(f"crd/{kind}" for kind in KINDS), "--timeout=60s")
    made = [
        {"apiVersion": "stand-in.example/v1", "kind": kind, "metadata": {"name": "yours"} | place}
        for kind, place in (("RemovalWidget", {"namespace": NAMESPACE}), ("RemovalGizmo", {}))
    ]
    shell.kubectl("apply", "-f", "-", text=yamlio.dumps_all(made))
    return shell


def typed(page: str) -> list[str]:
    """The commands of the page, in order, up to where a person decides."""
    lines = page.split("## Shared CRDs stay")[0].replace("\\\n", " ").splitlines()
    return [
        line.strip() for line in lines if line.startswith("    ") and line.strip().startswith(("kubectl ", "helm "))
    ]


def applied(shell: Shell, documents: list[dict[str, Any]]) -> None:
    for document in documents:
        document.get("metadata", {}).pop("finalizers", None)
    shell.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=yamlio.dumps_all(documents))


def names(shell: Shell, kind: str, namespace: str) -> set[str]:
    output = shell.kubectl("get", kind, "--namespace", namespace, "-o", "name")
    return {line.rpartition("/")[2] for line in output.split() if "removal" in line or "muster-bundle" in line}


def run_all(shell: Shell, deployer: Deployer) -> None:
    for command in typed(removal_page(small(), deployer.value)):
        code, output = shell.run("bash", "-c", command)
        assert code == 0, (command, output)
    assert shell.kubectl("get", ",".join(KINDS), "--all-namespaces", "-o", "name") == ""


@pytest.mark.parametrize("deployer", [Deployer.HELM, Deployer.HELMFILE])
def test_helm(shell: Shell, deployer: Deployer) -> None:
    run_all(shell, deployer)


@pytest.mark.parametrize("deployer", [Deployer.ARGOCD, Deployer.ARGOCD_HELM])
def test_argocd(shell: Shell, deployer: Deployer) -> None:
    files = argocd.render(small(), GIT)
    children = [yamlio.loads(text, name) for name, text in sorted(files.items()) if name.startswith("applications/")]
    applied(shell, children)
    # The parent keeps its finalizer: the page takes it away.
    shell.kubectl("apply", "--server-side", "-f", "-", text=files["app-of-apps.yaml"])
    kind = "applications.argoproj.io"
    before = names(shell, kind, "argocd")
    assert {r.name for r in small().releases} < before
    assert {"muster-bundle", "removal-operator-gate"} < before
    run_all(shell, deployer)
    kept = {r.name for r in small().releases if r.crds is CrdPolicy.KEEP}
    assert names(shell, kind, "argocd") == kept == {"removal-crds"}


def test_flux(shell: Shell) -> None:
    files = flux.render(small(), GIT)
    for name in ("flux-bundle.yaml", *sorted(n for n in files if n.startswith("releases/"))):
        applied(shell, yamlio.loads_all(files[name], name))
    kind = "helmreleases.helm.toolkit.fluxcd.io"
    assert {"removal-crds", "removal-operator", "removal-operator-gate"} < names(shell, kind, "flux-system")
    run_all(shell, Deployer.FLUX)
    assert names(shell, kind, "flux-system") == {"removal-crds"}
    state = shell.kubectl(
        "get", "kustomizations.kustomize.toolkit.fluxcd.io", "muster-bundle", "-n", "flux-system", "-o",
        "jsonpath={.spec.suspend} {.spec.prune}",
    )  # fmt: skip
    assert state == "true false"
    (shell.home / "flux-bundle.yaml").write_text(files["flux-bundle.yaml"])
    shell.kubectl("delete", "-f", "flux-bundle.yaml", "--timeout=60s")
