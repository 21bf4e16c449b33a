"""Least privilege in the bed: the chart's service accounts, and what became of their rights."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from muster.resources.base import SYSTEM_NAMESPACE
from tests.contract.client import Client
from tests.contract.server import server_of
from tests.controlplane import audit
from tests.controlplane.audit import Request, Right
from tests.controlplane.cluster import ControlPlane

AGENT, CONTROLLER = "muster-agent", "muster-controller"
WORKLOADS = ("Deployment", "DaemonSet", "PodDisruptionBudget", "PriorityClass")
"""Left out: the bed runs the programs itself, so that it can kill them."""
Object = dict[str, Any]

WITH_WORKERS = sorted(
    Right(group, resource, verb)
    for group, resource, verbs in (
        ("batch", "jobs", "create delete get list watch"),
        ("", "services", "create delete get"),
        ("", "secrets", "create delete get"),
        ("scheduling.volcano.sh", "podgroups", "create delete get"),
        ("events.k8s.io", "events", "list"),
        ("muster.dev", "certificationparts", "create delete get"),
        ("resource.k8s.io", "resourceslices", "list"),
    )
    for verb in verbs.split()
)
"""What the controller may do only for tests in workers: `test_worker_rights` shows that each of them is needed."""


WHEN_ASKED = sorted(
    Right(group, resource, verb)
    for group, resource, verbs in (
        ("", "pods", "get patch"),
        ("muster.dev", "repairs", "get patch"),
        ("muster.dev", "maintenances/status", "patch"),
    )
    for verb in verbs.split()
)
"""What the controller does only for checkpoints, cancelled repairs and maintenance: see `test_operate_rights`."""


def the_chart() -> ModuleType:
    """Helm's engine comes with the fuller suite only; the other one collects these tests too."""
    from tests.deploy import chart

    return chart


def user_of(account: str) -> str:
    return f"{audit.SERVICE_ACCOUNT}{SYSTEM_NAMESPACE}:{account}"


def credential_of(token: str) -> str:
    """The credential ID under which the API server logs the requests made with a service account's token."""
    claims = token.split(".")[1]
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}"


@dataclass
class Rights:
    """The chart as installed, without its workloads, and credentials of its accounts."""

    plane: ControlPlane
    objects: list[Object] = field(default_factory=list)
    _agents: dict[str, Path] = field(default_factory=dict)

    @property
    def _admin(self) -> Client:
        return server_of("real", self.plane.kubeconfig_file()).admin

    def install(self, values: Mapping[str, Any] | None = None) -> None:
        """Apply the chart's definitions, roles and admission policies."""
        chart, kubeconfig = the_chart(), self.plane.kubeconfig_file()
        values = chart.merged({"namespace": {"create": True}}, values or {})
        self.objects = [o for o in chart.render(values) if o["kind"] not in WORKLOADS]
        first = [o for o in self.objects if o["kind"] in ("Namespace", "CustomResourceDefinition")]
        apply = ("apply", "--server-side", "--field-manager=muster-install", "-f", "-")
        chart.kubectl(kubeconfig, *apply, stdin=chart.text_of(first))
        names = [f"crd/{o['metadata']['name']}" for o in chart.of_kind(first, "CustomResourceDefinition")]
        chart.kubectl(kubeconfig, "wait", "--for=condition=Established", "--timeout=60s", *names)
        chart.kubectl(kubeconfig, *apply, stdin=chart.text_of([o for o in self.objects if o not in first]))

    def agent(self, node: str) -> Path:
        """The kubeconfig of the agent on `node`, whose Node must exist: a token bound to a pod there."""
        if node not in self._agents:
            with self._admin as admin:
                self._agents[node] = self.plane.kubeconfig_file(f"agent-{node}", the_chart().agent_token(admin, node))
        return self._agents[node]

    def controller(self) -> str:
        """A token of the controller's service account; each is another credential in the audit log."""
        with self._admin as admin:
            return str(the_chart().controller_token(admin))

    # What became of them

    def rules(self, account: str) -> list[Object]:
        """The rules of all roles that are bound to the account."""
        bound = {
            (o["roleRef"]["kind"], o["roleRef"]["name"])
            for o in self.objects
            if o["kind"] in ("ClusterRoleBinding", "RoleBinding")
            and any(s["name"] == account for s in o.get("subjects") or ())
        }
        roles = [o for o in self.objects if (o["kind"], o["metadata"]["name"]) in bound]
        return [rule for role in roles for rule in role["rules"]]

    def requests(self, account: str) -> list[Request]:
        return audit.of(audit.read(self.plane.audit_log), user_of(account))

    def refused(self) -> list[Request]:
        """Requests of Muster's own that were not allowed."""
        return [r for account in (AGENT, CONTROLLER) for r in audit.refused(self.requests(account))]

    def unused(self, account: str, more: list[Request]) -> list[Right]:
        """Rights of the account that no request needed, here or among `more`."""
        return audit.unused(self.rules(account), [*self.requests(account), *more])
