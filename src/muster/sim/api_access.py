"""Who may talk to the API server, and what it tells people about their own rights."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Any

from muster.kube.api import Object
from muster.sim.api_faults import Request
from muster.sim.api_status import StatusError, forbidden

ADMIN_GROUP = "system:masters"


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ("system:authenticated",)


@dataclass(frozen=True)
class Denial:
    """Refuses matching requests of one user. `*` matches everything."""

    user: str
    verb: str = "*"
    plural: str = "*"
    namespace: str = "*"

    def matches(self, request: Request) -> bool:
        pairs = (
            (self.user, request.user),
            (self.verb, request.verb),
            (self.plural, request.plural),
            (self.namespace, request.namespace),
        )
        return all(mine in ("*", asked) for mine, asked in pairs)


class Access:
    """Users by token, and a table of denials: who is known may do everything that is not denied."""

    def __init__(self) -> None:
        self.denials: list[Denial] = []
        self._users: dict[str, User] = {}

    def add_user(self, name: str, groups: tuple[str, ...] = (), token: str | None = None) -> str:
        """Make a user known. Returns the token (a new random one unless given)."""
        token = token or secrets.token_urlsafe(24)
        self._users[token] = User(name, (*groups, "system:authenticated"))
        return token

    def token_of(self, name: str) -> str | None:
        return next((token for token, user in self._users.items() if user.name == name), None)

    def user_of(self, authorization: str) -> User:
        """The user of an Authorization header. Raises StatusError 401."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            for known, user in self._users.items():
                if hmac.compare_digest(known.encode(), token.strip().encode()):
                    return user
        raise StatusError(401, "Unauthorized", "Unauthorized")

    def allows(self, request: Request) -> bool:
        return not any(denial.matches(request) for denial in self.denials)

    def check(self, request: Request) -> None:
        """Raise StatusError 403 for a denied request."""
        if self.allows(request):
            return
        where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
        what = f"{request.plural}/{request.subresource}" if request.subresource else request.plural
        why = f'User "{request.user}" cannot {request.verb} resource "{what}" in API group "{request.group}" {where}'
        raise forbidden(request.plural, request.group, request.name, why)

    def review(self, plural: str, body: Object, user: User) -> Object:
        """Answer a self-subject review."""
        answer = {name: value for name, value in body.items() if name != "status"}
        answer.setdefault("metadata", {"creationTimestamp": None})
        match plural:
            case "selfsubjectaccessreviews":
                allowed = self.allows(_asked(body.get("spec") or {}, user))
                answer["status"] = {"allowed": allowed} if allowed else {"allowed": False, "reason": "denied"}
            case "selfsubjectrulesreviews":
                answer["status"] = {
                    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                    "incomplete": bool(self.denials),
                }
            case _:
                answer["status"] = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
        return answer


def _asked(spec: dict[str, Any], user: User) -> Request:
    asked = spec.get("resourceAttributes") or {}
    return Request(
        verb=asked.get("verb", ""),
        group=asked.get("group", ""),
        plural=asked.get("resource", ""),
        namespace=asked.get("namespace", ""),
        name=asked.get("name", ""),
        subresource=asked.get("subresource", ""),
        user=user.name,
    )
