"""The audit log of a control plane: who asked for what, and which granted rights nobody used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVICE_ACCOUNT = "system:serviceaccount:"
REFUSALS = (401, 403)
CREDENTIAL = "authentication.kubernetes.io/credential-id"
WRITES = ("create", "update", "patch", "delete", "deletecollection")
CREATED = 201


@dataclass(frozen=True, order=True)
class Right:
    """One thing that RBAC can grant. `resource` includes the subresource (`pods/eviction`)."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"


@dataclass(frozen=True)
class Request:
    """One request to the API server, as its audit log tells it. `code` is the status of the answer."""

    user: str
    right: Right
    namespace: str
    name: str
    code: int
    message: str = ""
    credential: str = ""
    """Which token was shown, where the server can tell (`JTI=...` of a service account's)."""
    at: str = ""
    """When the request came, RFC 3339 with microseconds, in the server's time."""

    @property
    def rights(self) -> tuple[Right, ...]:
        """What the request needed: an apply that creates needs the right to create too."""
        if self.right.verb == "patch" and self.code == CREATED:
            return (self.right, Right(self.right.group, self.right.resource, "create"))
        return (self.right,)


def read(path: Path) -> list[Request]:
    """The requests about resources, in the order of their answers. A line that is being written is left out."""
    requests = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            found = _request(event)
            if found is not None:
                requests.append(found)
    return requests


def _request(event: Mapping[str, Any]) -> Request | None:
    """A watch is told when it starts and when it ends; only one of them counts."""
    target = event.get("objectRef")
    status = event.get("responseStatus") or {}
    verb, stage = event.get("verb", ""), event.get("stage", "")
    is_wanted = stage == "ResponseStarted" if verb == "watch" and status.get("code") == 200 else True
    if target is None or not is_wanted or (verb != "watch" and stage == "ResponseStarted"):
        return None
    resource, sub = target.get("resource", ""), target.get("subresource", "")
    return Request(
        user=event["user"].get("username", ""),
        right=Right(target.get("apiGroup", ""), f"{resource}/{sub}" if sub else resource, verb),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=int(status.get("code", 0)),
        message=str(status.get("message", "")),
        credential=next(iter((event["user"].get("extra") or {}).get(CREDENTIAL, ())), ""),
        at=str(event.get("requestReceivedTimestamp", "")),
    )


def writes(requests: Iterable[Request]) -> list[Request]:
    """The requests that changed something."""
    return [r for r in requests if r.right.verb in WRITES and 200 <= r.code < 300]


def of(requests: Iterable[Request], user: str) -> list[Request]:
    """The requests of one user."""
    return [r for r in requests if r.user == user]


def refused(requests: Iterable[Request]) -> list[Request]:
    """The requests that the server did not allow."""
    return [r for r in requests if r.code in REFUSALS]


def granted(rules: Iterable[Mapping[str, Any]]) -> list[Right]:
    """Everything that RBAC rules (of Roles and ClusterRoles) grant, sorted. Raises ValueError on a wildcard."""
    return sorted(dict.fromkeys(_rights(rules)))


def _rights(rules: Iterable[Mapping[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for verb in rule.get("verbs") or ():
                    if "*" in (group, resource, verb):
                        raise ValueError(f"the rule {dict(rule)} has a wildcard")
                    yield Right(group, resource, verb)


def unused(rules: Iterable[Mapping[str, Any]], requests: Sequence[Request]) -> list[Right]:
    """Granted rights that no request of `requests` needed, sorted. Refused requests needed nothing."""
    used = {right for r in requests if r.code not in REFUSALS for right in r.rights}
    return [right for right in granted(rules) if right not in used]
