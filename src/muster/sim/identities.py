"""Who sends a request: name, groups and the extra facts that come with a service account's token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ADMIN_GROUP = "system:masters"
"""Its members may do everything, whatever the role rules say."""
ACCOUNT_PREFIX = "system:serviceaccount:"
ACCOUNTS_GROUP = "system:serviceaccounts"

NODE_NAME = "authentication.kubernetes.io/node-name"
NODE_UID = "authentication.kubernetes.io/node-uid"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True)
class User:
    """An authenticated (or anonymous) client. `extra` holds lists of texts by key, as a token carries them."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def unrestricted(self) -> bool:
        return ADMIN_GROUP in self.groups

    def to_json(self) -> dict[str, Any]:
        """The UserInfo of authentication.k8s.io/v1."""
        info: dict[str, Any] = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(self.extra[key]) for key in sorted(self.extra)}
        return info


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


def trusted(name: str) -> User:
    """A client in process: known by name and allowed everything."""
    return User(name, (ADMIN_GROUP, AUTHENTICATED))


def account_user(namespace: str, name: str, uid: str, extra: Mapping[str, tuple[str, ...]] | None = None) -> User:
    """The user that a service account acts as."""
    groups = (ACCOUNTS_GROUP, f"{ACCOUNTS_GROUP}:{namespace}", AUTHENTICATED)
    return User(f"{ACCOUNT_PREFIX}{namespace}:{name}", groups, uid, extra or {})
