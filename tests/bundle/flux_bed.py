"""Flux's own controllers as processes on loopback, against a real API server. They read a repository of our own.

Intervals of the bundle are left as they are: a push is announced to the source, and what waits for a dependency looks
again after a second instead of half a minute.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


from muster import yamlio
from muster.configure.plan import Plan
from muster.configure.render import flux
from muster.configure.render.repository import Repository
from tests.bundle.git_server import BRANCH, GitServer
from tests.bundle.shell import Shell, written
from tests.contract.server import eventually, server_of
from tests.controlplane.process import Program, answers, free_port

SOURCE, HELM, KUSTOMIZE = "source-controller", "helm-controller", "kustomize-controller"
CONTROLLERS = (SOURCE, HELM, KUSTOMIZE)
LIMIT_S = 45.0
"""For what takes the controllers a second or two on an idle machine."""
_HELM_API = f"/apis/helm.toolkit.fluxcd.io/v2/namespaces/{flux.NAMESPACE}/helmreleases"
_GIT_API = f"/apis/source.toolkit.fluxcd.io/v1/namespaces/{flux.NAMESPACE}/gitrepositories"


class Bed:
    """A cluster in which Flux runs. `shell` has kubectl and the real Helm, `git` is the repository that Flux reads."""

    def __init__(self, shell: Shell, git: GitServer, kubeconfig: Path) -> None:
        self.shell = shell
        self.git = git
        self.api = server_of("real", kubeconfig).admin

    def push(self, name: str, plan: Plan) -> Path:
        """Commit the bundle of `plan` in the folder `name`, apply its entry, tell Flux to look. Returns the folder."""
        files = flux.render(plan, Repository(self.git.url, BRANCH, name))
        self.git.commit(name, files)
        folder = self.shell.home / name
        written(folder, files)
        self.shell.kubectl("apply", "--server-side", "-f", str(folder / "flux-bundle.yaml"))
        self.look()
        return folder

    def look(self) -> None:
        """What `flux reconcile source git` does."""
        self._annotate(f"{_GIT_API}/{flux.BUNDLE}", "reconcile.fluxcd.io/requestedAt")

    def start_again(self, name: str) -> None:
        """What `flux reconcile helmrelease --reset` does."""
        self._annotate(f"{_HELM_API}/{name}", "reconcile.fluxcd.io/requestedAt", "reconcile.fluxcd.io/resetAt")

    def _annotate(self, path: str, *keys: str) -> None:
        token = self.api.get(path).ok()["metadata"]["resourceVersion"]
        self.api.patch(path, {"metadata": {"annotations": dict.fromkeys(keys, token)}}).ok()

    def release(self, name: str) -> dict[str, Any]:
        """The HelmRelease; empty when there is none."""
        answer = self.api.get(f"{_HELM_API}/{name}")
        return {} if answer.status == 404 else answer.ok()

    def condition(self, name: str, kind: str = "Ready") -> tuple[str, str, str]:
        """Status, reason and message of a condition of a HelmRelease; empty when it has none yet."""
        return condition_of(self.release(name), kind)

    def ready(self, *names: str) -> None:
        """Wait until each is ready in its present generation, as a dependent wants it."""
        for name in names:
            self.until(lambda name=name: is_ready(self.release(name)), name)  # type: ignore[misc]

    def until(self, condition: Callable[[], object], about: str) -> None:
        """Wait; a failure tells what the HelmReleases say."""
        try:
            eventually(condition, LIMIT_S)
        except AssertionError as error:
            items = self.api.get(_HELM_API).ok()["items"]
            told = [f"{o['metadata']['name']}: {condition_of(o, 'Ready')}" for o in items]
            raise AssertionError(f"{about}: {error}\n" + "\n".join(told)) from error

    def values(self, name: str, namespace: str) -> Any:
        """The values in Helm's own record."""
        return json.loads(self.shell.ok("helm", "get", "values", name, "-n", namespace, "-o", "json"))


def condition_of(release: Mapping[str, Any], kind: str) -> tuple[str, str, str]:
    for condition in release.get("status", {}).get("conditions", ()):
        if condition["type"] == kind:
            return condition["status"], condition["reason"], condition["message"]
    return "", "", ""


def is_ready(release: Mapping[str, Any]) -> bool:
    observed = release.get("status", {}).get("observedGeneration")
    return condition_of(release, "Ready")[0] == "True" and observed == release["metadata"]["generation"]


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
