"""Flux's own controllers as processes on loopback, against a real API server. They read a repository of our own.

Intervals of the bundle are left as they are: a push is announced to the source, and what waits for a dependency looks
again after a second instead of half a minute.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from muster import yamlio
from muster.configure.plan import Plan
from muster.configure.render import flux
from muster.configure.render.repository import Repository
from tests.bundle.git_server import BRANCH, GitServer
from tests.bundle.shell import Shell
from tests.contract.server import eventually, server_of
from tests.controlplane.process import Program, answers, free_port

SOURCE, HELM, KUSTOMIZE = "source-controller", "helm-controller", "kustomize-controller"
CONTROLLERS = (SOURCE, HELM, KUSTOMIZE)
LIMIT_S = 45.0
"""For what takes the controllers a second or two on an idle machine."""
_HELM_API = f"/apis/helm.toolkit.fluxcd.io/v2/namespaces/{flux.NAMESPACE}/helmreleases"
_KUSTOMIZE_API = f"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{flux.NAMESPACE}/kustomizations"
_SOURCE_API = f"/apis/source.toolkit.fluxcd.io/v1/namespaces/{flux.NAMESPACE}"
_ALL = (
    _KUSTOMIZE_API,
    _HELM_API,
    *(f"{_SOURCE_API}/{plural}" for plural in ("helmcharts", "helmrepositories", "gitrepositories")),
)
_ASKED, _RESET = "reconcile.fluxcd.io/requestedAt", "reconcile.fluxcd.io/resetAt"


class Bed:
    """A cluster in which Flux runs. `shell` has kubectl and the real Helm; Flux reads the repository `git`."""

    def __init__(self, shell: Shell, git: GitServer, kubeconfig: Path) -> None:
        self.shell = shell
        self.git = git
        self.api = server_of("real", kubeconfig).admin

    def push(self, name: str, plan: Plan, *, quick_retries: bool = False) -> None:
        """Commit the bundle of `plan` in the folder `name`, apply its entry, tell Flux.

        `quick_retries`: what is tried again without end is tried every second instead of every minute.
        """
        files = flux.render(plan, Repository(self.git.url, BRANCH, name))
        if quick_retries:
            quick = {path: re.sub(r"(retryInterval: [\"']?)1m\b", r"\g<1>1s", text) for path, text in files.items()}
            assert quick != files
            files = quick
        self.git.commit(name, files)
        self.shell.kubectl("apply", "--server-side", "-f", "-", text=files["flux-bundle.yaml"])
        # What `flux reconcile source git` does.
        self._annotate(f"{_SOURCE_API}/gitrepositories/{flux.BUNDLE}", _ASKED)

    def start_again(self, name: str) -> None:
        """What `flux reconcile helmrelease --reset` does."""
        self._annotate(f"{_HELM_API}/{name}", _ASKED, _RESET)

    def looked_again(self, *names: str) -> None:
        """Have each release looked at once more, and wait until that is done."""
        for name in names:
            token = self._annotate(f"{_HELM_API}/{name}", _ASKED)
            self.until(lambda: self.release(name)["status"].get("lastHandledReconcileAt") == token, name)  # noqa: B023 - called in this turn

    def _annotate(self, path: str, *keys: str) -> str:
        token: str = self.api.get(path).ok()["metadata"]["resourceVersion"]
        self.api.patch(path, {"metadata": {"annotations": dict.fromkeys(keys, token)}}).ok()
        return token

    def release(self, name: str) -> dict[str, Any]:
        """The HelmRelease; empty when there is none."""
        answer = self.api.get(f"{_HELM_API}/{name}")
        return {} if answer.status == 404 else answer.ok()

    def kustomization(self) -> dict[str, Any]:
        return self.api.get(f"{_KUSTOMIZE_API}/{flux.BUNDLE}").ok()

    def condition(self, name: str, kind: str = "Ready") -> tuple[str, str, str]:
        """Status, reason and message of a condition of a HelmRelease; empty when it has none yet."""
        return condition_of(self.release(name), kind)

    def generation(self, name: str) -> int:
        return int(self.release(name)["metadata"]["generation"])

    def ready(self, *names: str, pods: tuple[str, str] = ("", "")) -> None:
        """Wait until each is ready in its present generation, as a dependent wants it.

        `pods`: namespace and selector of pods that become ready meanwhile.
        """

        def all_ready() -> bool:
            if pods[0]:
                self.pods_ready(*pods)
            return all(is_ready(self.release(name)) for name in names)

        self.until(all_ready, f"{names} ready")

    def until(self, condition: Callable[[], object], about: str) -> None:
        """Wait; a failure tells what the HelmReleases say."""
        try:
            eventually(condition, LIMIT_S)
        except AssertionError as error:
            items = self.api.get(_HELM_API).ok()["items"]
            told = [f"{o['metadata']['name']}: {condition_of(o, 'Ready')}" for o in items]
            found = self.api.get(_KUSTOMIZE_API).ok()["items"]
            told += [f"Kustomization: {condition_of(o, 'Ready')}" for o in found]
            raise AssertionError(f"{about}: {error}\n" + "\n".join(told)) from error

    def values(self, name: str, namespace: str) -> Any:
        """The values in Helm's own record."""
        return json.loads(self.shell.ok("helm", "get", "values", name, "-n", namespace, "-o", "json"))

    # What a kubelet would do

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        found = self.api.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector).ok()["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pods_ready(self, namespace: str, selector: str) -> bool:
        """Make the pods that are there ready. Whether there are any."""
        return self._tell(namespace, selector, {"phase": "Running", "conditions": [_READY]})

    def pods_done(self, namespace: str, selector: str) -> bool:
        """End the pods that are there well. Whether there are any."""
        return self._tell(namespace, selector, {"phase": "Succeeded"})

    def _tell(self, namespace: str, selector: str, status: dict[str, Any]) -> bool:
        pods = self.pods(namespace, selector)
        for pod in pods:
            if pod["status"].get("phase") != status["phase"]:
                path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
                self.api.patch(path, {"status": status})
        return bool(pods)

    def clear(self) -> None:
        """Take away what Flux has deployed, and wait until it is gone."""
        for path in _ALL:
            self.api.delete(path)
            self.until(lambda: not self.api.get(path).ok()["items"], f"{path} is empty")  # noqa: B023 - called in this turn

    def forget(self) -> None:
        """Take away all that Flux would look at, whatever holds it. For when no controller runs."""
        for path in _ALL:
            # An API server needs a moment before it serves a new kind.
            eventually(lambda: self.api.get(path).status == 200, LIMIT_S)  # noqa: B023 - called in this turn
            for found in self.api.get(path).ok()["items"]:
                self.api.patch(f"{path}/{found['metadata']['name']}", {"metadata": {"finalizers": None}})
            self.api.delete(path)


_READY = {"type": "Ready", "status": "True"}


def condition_of(release: Mapping[str, Any], kind: str) -> tuple[str, str, str]:
    for condition in release.get("status", {}).get("conditions", ()):
        if condition["type"] == kind:
            return condition["status"], condition["reason"], condition["message"]
    return "", "", ""


def is_ready(release: Mapping[str, Any]) -> bool:
    observed = release.get("status", {}).get("observedGeneration")
    return condition_of(release, "Ready")[0] == "True" and observed == release["metadata"]["generation"]


@contextmanager
def flux_bed(
    home: Path, helm_folder: Path, programs: Mapping[str, Path], crds: list[Path], kubeconfig: Path
) -> Iterator[Bed]:
    """Flux in the cluster of `kubeconfig`, on an empty repository, while the context lasts."""
    shell = Shell(home, helm_folder, kubeconfig)
    install_crds(shell, [file for file in crds if "toolkit.fluxcd.io" in file.name])
    with GitServer(home / "git") as git:
        bed = Bed(shell, git, kubeconfig)
        # Other tests leave objects of these kinds behind, and need them to go away without a controller.
        bed.forget()
        try:
            with running(programs, shell, kubeconfig):
                yield bed
        finally:
            bed.forget()


@contextmanager
def running(programs: Mapping[str, Path], shell: Shell, kubeconfig: Path) -> Iterator[None]:
    """The controllers, while the context lasts. Raises StartError."""
    artifacts = shell.home / "artifacts"
    artifacts.mkdir()
    storage = f"127.0.0.1:{free_port()}"
    own = {
        SOURCE: [f"--storage-path={artifacts}", f"--storage-addr={storage}", f"--storage-adv-addr={storage}"],
        HELM: ["--graceful-shutdown-timeout=1s"],
        KUSTOMIZE: [],
    }
    environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(shell.home), "TMPDIR": str(artifacts)}
    environment["RUNTIME_NAMESPACE"] = flux.NAMESPACE
    variables = [f"{key}={value}" for key, value in environment.items()]
    started: list[Program] = []
    try:
        for name in CONTROLLERS:
            health = f"127.0.0.1:{free_port()}"
            flags = [
                "--metrics-addr=0",
                f"--health-addr={health}",
                "--enable-leader-election=false",
                "--requeue-dependency=1s",
                "--min-retry-delay=500ms",
                "--max-retry-delay=2s",
            ]
            command = ["env", "-i", *variables, str(programs[name]), *flags, *own[name]]
            program = Program(name, command, shell.home / f"{name}.log")
            program.start()
            started.append(program)
            program.wait_for(lambda health=health: answers(f"http://{health}/readyz"))  # type: ignore[misc]
        yield
    finally:
        for program in reversed(started):
            program.stop()


def install_crds(shell: Shell, files: list[Path]) -> None:
    """Flux's own kinds, and its namespace."""
    names = []
    for file in files:
        shell.kubectl("apply", "--server-side", "-f", str(file))
        names.append("crd/" + yamlio.loads_all(file.read_text(), file.name)[-1]["metadata"]["name"])
    shell.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    code, output = shell.run("kubectl", "create", "namespace", flux.NAMESPACE)
    assert code == 0 or "AlreadyExists" in output, output
