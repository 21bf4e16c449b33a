"""Who may talk to the API server: authentication by token, impersonation, and role-based authorisation."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from muster.sim.api_faults import Request
from muster.sim.api_status import StatusError, bad_request, forbidden
from muster.sim.identities import (
    ACCOUNT_PREFIX,
    ACCOUNTS_GROUP,
    ADMIN_GROUP,
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    User,
)
from muster.sim.rbac import Attributes, Decision
from muster.sim.rbac_grants import decision
from muster.sim.service_accounts import TokenIssuer

if TYPE_CHECKING:
    from muster.sim.store import Store

__all__ = ["ADMIN_GROUP", "Access", "Denial", "User"]


@dataclass(frozen=True)
class Denial:
    """Refuses matching requests of one user, whatever the role rules say. `*` matches everything."""

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
    """Users by token, a table of denials, and what the roles and bindings of the store allow."""

    def __init__(self, store: Store) -> None:
        self.denials: list[Denial] = []
        self.tokens = TokenIssuer(store)
        self._store = store
        self._users: dict[str, User] = {}

    # Authentication

    def add_user(self, name: str, groups: tuple[str, ...] = (), token: str | None = None) -> str:
        """Make a user known, with the rights that bindings give. Returns the token: `token`, or a new random one."""
        token = token or secrets.token_urlsafe(24)
        self._users[token] = User(name, (*groups, AUTHENTICATED), f"{name}-uid")
        return token

    def token_of(self, name: str) -> str | None:
        return next((token for token, user in self._users.items() if user.name == name), None)

    def user_of(self, authorization: str) -> User:
        """The user of an Authorization header; nobody known without one. Raises StatusError 401."""
        scheme, _, token = authorization.strip().partition(" ")
        if not scheme:
            return ANONYMOUS
        # A real server takes what is no bearer token as no credentials at all.
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        found = self.user_of_token(token.strip())
        if found is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return found

    def user_of_token(self, token: str, audience: str = "") -> User | None:
        """The user of a token. `audience`: for whom it must be made ("": for this server)."""
        for known, user in self._users.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return user
        return self.tokens.user_of(token, audience) if audience else self.tokens.user_of(token)

    def impersonated(self, user: User, headers: Mapping[str, str], groups: list[str], asked: Attributes) -> User:
        """The user that a request wants to act as; `user` itself when it names none. Raises StatusError 400 or 403.

        `headers` in small letters; `groups` are the values of Impersonate-Group.
        """
        wanted = {name: value for name, value in headers.items() if name.startswith("impersonate-")}
        if not wanted:
            return user
        name = wanted.get("impersonate-user", "")
        if not name:
            raise bad_request("an impersonating request must name a user in Impersonate-User")
        uid = wanted.get("impersonate-uid", "")
        extra = {
            unquote(key.removeprefix("impersonate-extra-")): (value,)
            for key, value in wanted.items()
            if key.startswith("impersonate-extra-")
        }
        needed = _impersonations(name, groups, uid, extra)
        if not all(self.decide(user, each).allowed for each in needed):
            mode = "serviceaccount" if name.startswith(ACCOUNT_PREFIX) else "user-info"
            verb = f"impersonate-on:{mode}:{asked.verb}"
            raise _refusal(user, replace(asked, verb=verb, name=""), "")
        return User(name, _groups_of(name, groups), uid, extra)

    # Authorisation

    def decide(self, user: User, asked: Attributes) -> Decision:
        """Whether a user may do what is asked."""
        request = Request(
            asked.verb, asked.group, asked.resource, asked.namespace, asked.name, asked.subresource, user.name
        )
        if any(denial.matches(request) for denial in self.denials):
            return Decision(False)
        return decision(self._store, user, asked)

    def check(self, user: User, asked: Attributes) -> None:
        """Raise StatusError 403 for what a user may not do."""
        found = self.decide(user, asked)
        if not found.allowed:
            raise _refusal(user, asked, found.reason)


def _impersonations(name: str, groups: list[str], uid: str, extra: Mapping[str, tuple[str, ...]]) -> list[Attributes]:
    """The rights that one needs to act as such a user."""
    needed = []
    if name.startswith(ACCOUNT_PREFIX) and name.count(":") == 3:
        namespace, account = name.removeprefix(ACCOUNT_PREFIX).split(":")
        needed.append(Attributes("impersonate", "", "serviceaccounts", "", namespace, account))
    else:
        needed.append(Attributes("impersonate", "", "users", name=name))
    needed += [Attributes("impersonate", "", "groups", name=group) for group in groups]
    group = "authentication.k8s.io"
    if uid:
        needed.append(Attributes("impersonate", group, "uids", name=uid))
    for key in sorted(extra):
        needed += [Attributes("impersonate", group, "userextras", key, name=value) for value in extra[key]]
    return needed


def _groups_of(name: str, groups: list[str]) -> tuple[str, ...]:
    if name == ANONYMOUS.name:
        return (*groups, *(() if UNAUTHENTICATED in groups else (UNAUTHENTICATED,)))
    if name.startswith(ACCOUNT_PREFIX) and name.count(":") == 3 and not groups:
        namespace = name.split(":")[2]
        return (ACCOUNTS_GROUP, f"{ACCOUNTS_GROUP}:{namespace}", AUTHENTICATED)
    return (*groups, *(() if AUTHENTICATED in groups else (AUTHENTICATED,)))


def _refusal(user: User, asked: Attributes, reason: str) -> StatusError:
    told = f": rbac: {reason}" if reason else ""
    if asked.path:
        text = f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"{told}'
        return StatusError(403, "Forbidden", text, detailed=True)
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {asked.verb} resource "{asked.combined}" in API group "{asked.group}" {where}'
    return forbidden(asked.resource, asked.group, asked.name, why + told)
