"""A control plane of our own on loopback: etcd, API server, controller manager and, on request, the scheduler."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muster import yamlio
from tests.controlplane.binaries import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER, Binaries
from tests.controlplane.credentials import ADMIN, CONTROLLER_MANAGER_USER, SCHEDULER_USER, Credentials
from tests.controlplane.process import Program, StartError, answers, free_port, listens

ISSUER = "https://kubernetes.default.svc"
START_TRIES = 3
"""A free port can be taken by somebody else before the program listens on it."""
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": [CONTROLLER_MANAGER_USER, SCHEDULER_USER, "system:apiserver"]},
        {
            "level": "None",
            "nonResourceURLs": ["/livez*", "/readyz*", "/healthz*", "/openapi/*", "/api", "/api/*", "/apis"],
        },
        {"level": "Metadata"},
    ],
}


class ControlPlane:
    """Started by `start`, stopped by `stop`. Everything it writes is below `folder`.

    Admission, RBAC, service accounts and garbage collection work as in a real cluster; there are no nodes.
    """

    def __init__(self, binaries: Binaries, folder: Path) -> None:
        self.binaries = binaries
        self.folder = folder
        self.url = ""
        self.audit_log = folder / "audit.log"
        folder.mkdir(parents=True, exist_ok=True)
        self.credentials = Credentials(folder)
        self.credentials.write()
        (folder / "audit-policy.yaml").write_text(yamlio.dumps(AUDIT_POLICY))
        self._etcd_url = ""
        self._programs: dict[str, Program] = {}

    def start(self) -> None:
        """Start everything but the scheduler. Raises StartError."""
        for attempt in range(START_TRIES):
            try:
                self._start_etcd()
                self._start_api_server(free_port())
                break
            except StartError:
                self.stop()
                if attempt == START_TRIES - 1:
                    raise
        if self.controllers:
            self._start_controller_manager()

    @property
    def controllers(self) -> bool:
        """Whether the controller manager runs: garbage collection, budgets, service accounts, namespaces."""
        return CONTROLLER_MANAGER in self.binaries.paths

    def stop(self) -> None:
        for name in reversed(list(self._programs)):
            self._programs.pop(name).stop(kill=name == ETCD)
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    def kubeconfig(self, user: str = ADMIN, token: str = "") -> str:
        """A kubeconfig (YAML text) for a user of `credentials`, or for `token` (a service account's, say)."""
        return self.credentials.kubeconfig(self.url, user, token)

    def kubeconfig_file(self, user: str = ADMIN, token: str = "") -> Path:
        """The same as a file."""
        path = self.folder / f"kubeconfig-{user.replace(':', '-')}"
        path.touch(mode=0o600)
        path.write_text(self.kubeconfig(user, token))
        return path

    def pid(self, program: str) -> int:
        return self._programs[program].pid

    # What tests do to it

    def stop_api_server(self, *, kill: bool = False) -> None:
        self._programs[API_SERVER].stop(kill=kill)

    def start_api_server(self) -> None:
        """Start it again where it was."""
        self._start_api_server(int(self.url.rpartition(":")[2]))

    def compact(self) -> int:
        """Forget all older revisions of etcd, as it does by itself every five minutes. Returns the revision kept."""
        status = self._etcd("kv/range", {"key": "AA=="})
        revision = int(status["header"]["revision"])
        self._etcd("kv/compaction", {"revision": revision, "physical": True})
        return revision

    @contextmanager
    def scheduler(self) -> Iterator[None]:
        """The real scheduler, while the context lasts. Raises BinariesMissingError."""
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig_file(SCHEDULER_USER))},
        }
        path = self.folder / "scheduler.yaml"
        path.write_text(yamlio.dumps(config))
        port = free_port()
        flags = [f"--config={path}", f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={self.folder}"]
        program = self._program(SCHEDULER, flags)
        program.start()
        try:
            program.wait_for(lambda: listens(port))
            yield
        finally:
            program.stop()

    # Starting

    def _program(self, name: str, flags: list[str]) -> Program:
        program = Program(name, [str(self.binaries.path(name)), *flags], self.folder / f"{name}.log")
        self._programs[name] = program
        return program

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._etcd_url = client
        program = self._program(
            ETCD,
            [
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
            ],
        )
        program.start()
        program.wait_for(lambda: answers(f"{client}/health"))

    def _start_api_server(self, port: int) -> None:
        self.url = f"https://127.0.0.1:{port}"
        folder = self.folder
        program = self._program(
            API_SERVER,
            [
                f"--etcd-servers={self._etcd_url}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={port}",
                f"--tls-cert-file={folder / 'server.crt'}",
                f"--tls-private-key-file={folder / 'server.key'}",
                f"--token-auth-file={folder / 'tokens.csv'}",
                f"--service-account-issuer={ISSUER}",
                f"--service-account-key-file={folder / 'service-accounts.key'}",
                f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--authorization-mode=Node,RBAC",
                "--anonymous-auth=true",
                "--allow-privileged=true",
                "--endpoint-reconciler-type=none",
                f"--audit-policy-file={folder / 'audit-policy.yaml'}",
                f"--audit-log-path={self.audit_log}",
                "--audit-log-mode=blocking",
                "--shutdown-delay-duration=0s",
                "--profiling=false",
                # Without the controller manager nobody makes the accounts that this plugin asks for.
                *([] if self.controllers else ["--disable-admission-plugins=ServiceAccount"]),
            ],
        )
        program.start()
        program.wait_for(lambda: answers(f"{self.url}/readyz", self.credentials.ca_pem))

    def _start_controller_manager(self) -> None:
        port = free_port()
        program = self._program(
            CONTROLLER_MANAGER,
            [
                f"--kubeconfig={self.kubeconfig_file(CONTROLLER_MANAGER_USER)}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={self.folder}",
                "--leader-elect=false",
                f"--service-account-private-key-file={self.folder / 'service-accounts.key'}",
                f"--root-ca-file={self.folder / 'ca.crt'}",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
                "--profiling=false",
            ],
        )
        program.start()
        program.wait_for(self._default_account_exists)

    # Questions

    def _default_account_exists(self) -> bool:
        """Pods can be created in a namespace only when its default service account is there."""
        path = "api/v1/namespaces/default/serviceaccounts/default"
        return answers(f"{self.url}/{path}", self.credentials.ca_pem, self.credentials.tokens[ADMIN])

    def _etcd(self, path: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(f"{self._etcd_url}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.loads(answer.read()))
