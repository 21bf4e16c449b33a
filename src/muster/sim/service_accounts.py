"""Tokens of service accounts: issued on request, bound to a pod or a node, and checked with every use.

The tokens are JSON Web Tokens with the claims of a real cluster, signed with a key of this server alone (HS256).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object
from muster.sim.api_status import Cause, StatusError, bad_request, conflict, invalid, invalid_value
from muster.sim.identities import (
    CREDENTIAL_ID,
    NODE_NAME,
    NODE_UID,
    POD_NAME,
    POD_UID,
    User,
    account_user,
)

if TYPE_CHECKING:
    from muster.sim.store import Store

ISSUER = "https://kubernetes.default.svc"
DEFAULT_EXPIRY_S = 3600
MIN_EXPIRY_S = 600
MAX_EXPIRY_S = 1 << 32
_MAX_TOKEN_BYTES = 16 * 1024
_BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


@dataclass(frozen=True)
class _Bound:
    """What a token is bound to, as claims: kind in small letters -> name and uid."""

    claims: dict[str, dict[str, str]]


class TokenIssuer:
    """Issues and checks the tokens of one API server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = secrets.token_bytes(32)

    # Issuing

    def issue(self, namespace: str, name: str, body: Object) -> Object:
        """Answer a TokenRequest. Raises StatusError: 400, 404 account or bound object, 409 its uid, 422."""
        account = self._store.get(self._store.registry_kind("", "v1", "serviceaccounts"), name, namespace).obj
        spec = body.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        expiry_s, audiences = _checked(name, body, spec)
        now = self._store.now().astimezone(UTC)
        claims: dict[str, Any] = {
            "aud": audiences,
            "exp": int(now.timestamp()) + expiry_s,
            "iat": int(now.timestamp()),
            "iss": ISSUER,
            "jti": str(uuid.UUID(bytes=secrets.token_bytes(16), version=4)),
            "kubernetes.io": {
                "namespace": namespace,
                **self._bound(namespace, name, spec.get("boundObjectRef")).claims,
                "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]},
            },
            "nbf": int(now.timestamp()),
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        expires = datetime.fromtimestamp(claims["exp"], UTC)
        sent = body.get("metadata") if isinstance(body.get("metadata"), dict) else {}
        metadata = {**(sent or {}), "name": name, "namespace": namespace, "uid": account["metadata"]["uid"]}
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {**metadata, "creationTimestamp": self._store.timestamp()},
            "spec": {
                "audiences": audiences,
                "expirationSeconds": expiry_s,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": {
                "token": self._signed(claims),
                "expirationTimestamp": self._store.timestamp(expires),
            },
        }

    def _bound(self, namespace: str, account: str, reference: Any) -> _Bound:
        if not isinstance(reference, dict):
            return _Bound({})
        kind, version = str(reference.get("kind", "")), str(reference.get("apiVersion", ""))
        plural = _BINDABLE.get(kind)
        if plural is None or version != "v1":
            group = version.rpartition("/")[0]
            shown = f"{group}/{version.rpartition('/')[2]}, Kind={kind}"
            raise bad_request(f"cannot bind token to object of type {shown}")
        target, name = self._store.registry_kind("", "v1", plural), str(reference.get("name", ""))
        found = self._store.get(target, name, namespace).obj
        uid = found["metadata"]["uid"]
        claims = {kind.lower(): {"name": name, "uid": uid}}
        if kind == "Pod":
            spec = found.get("spec") or {}
            if spec.get("serviceAccountName", "default") != account:
                why = "pod running with different serviceaccount name."
                raise bad_request(f'cannot bind token for serviceaccount "{account}" to {why}')
            if spec.get("nodeName"):
                claims = {"node": self._node_claim(str(spec["nodeName"])), **claims}
        if reference.get("uid") and reference["uid"] != uid:
            why = (
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise conflict(kind, "", name, why)
        return _Bound(claims)

    def _node_claim(self, name: str) -> dict[str, str]:
        found = self._store.find(self._store.registry_kind("", "v1", "nodes"), ("", name))
        return {"name": name} if found is None else {"name": name, "uid": found.obj["metadata"]["uid"]}

    def _signed(self, claims: dict[str, Any]) -> str:
        head = _coded(json.dumps({"alg": "HS256", "typ": "JWT"}, separators=(",", ":")).encode())
        payload = _coded(json.dumps(claims, separators=(",", ":")).encode())
        return f"{head}.{payload}.{_coded(self._signature(f'{head}.{payload}'))}"

    def _signature(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode(), hashlib.sha256).digest()

    # Checking

    def user_of(self, token: str, audience: str = ISSUER) -> User | None:
        """Whose token this is; None when it is none of ours, has expired, or what it is bound to is gone."""
        claims = self._verified(token)
        if claims is None or audience not in claims["aud"]:
            return None
        now = self._store.now().timestamp()
        if not claims["nbf"] - 60 <= now < claims["exp"]:
            return None
        bound = claims["kubernetes.io"]
        namespace, account = bound["namespace"], bound["serviceaccount"]
        if not self._exists("serviceaccounts", namespace, account):
            return None
        for kind, plural in _BINDABLE.items():
            # The node of a bound pod is told, not checked.
            checked = kind.lower() in bound and not (kind == "Node" and "pod" in bound)
            if checked and not self._exists(plural, namespace, bound[kind.lower()]):
                return None
        extra: dict[str, tuple[str, ...]] = {CREDENTIAL_ID: (f"JTI={claims['jti']}",)}
        for kind, key_of_name, key_of_uid in (("pod", POD_NAME, POD_UID), ("node", NODE_NAME, NODE_UID)):
            if kind in bound:
                extra[key_of_name] = (bound[kind]["name"],)
                if bound[kind].get("uid"):
                    extra[key_of_uid] = (bound[kind]["uid"],)
        return account_user(namespace, account["name"], account["uid"], extra)

    def _verified(self, token: str) -> dict[str, Any] | None:
        """The claims of a token that we signed."""
        if len(token) > _MAX_TOKEN_BYTES or token.count(".") != 2 or not token.isascii():
            return None
        signed, _, signature = token.rpartition(".")
        try:
            given = _decoded(signature)
            if not hmac.compare_digest(given, self._signature(signed)):
                return None
            claims: dict[str, Any] = json.loads(_decoded(signed.partition(".")[2]))
        except (ValueError, binascii.Error):
            return None
        return claims

    def _exists(self, plural: str, namespace: str, reference: dict[str, str]) -> bool:
        kind = self._store.registry_kind("", "v1", plural)
        found = self._store.find(kind, (namespace if kind.namespaced else "", reference["name"]))
        if found is None or found.obj["metadata"]["uid"] != reference["uid"]:
            return False
        deletion = found.obj["metadata"].get("deletionTimestamp")
        # A real server takes a token for a minute after the end that its object was given.
        return deletion is None or datetime.fromisoformat(deletion) + timedelta(seconds=60) > self._store.now()


def _coded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _checked(name: str, body: Object, spec: dict[str, Any]) -> tuple[int, list[str]]:
    """Seconds until expiry, and audiences. Raises StatusError 422."""
    metadata = body.get("metadata")
    sent = metadata.get("name") if isinstance(metadata, dict) else None
    if sent and sent != name:
        cause = invalid_value("metadata.name", sent, "must match the service account name if specified")
        raise _refused(cause, name)
    expiry_s = spec.get("expirationSeconds")
    expiry_s = DEFAULT_EXPIRY_S if expiry_s is None else expiry_s
    if not isinstance(expiry_s, int) or isinstance(expiry_s, bool):
        raise bad_request("spec.expirationSeconds must be a whole number")
    if expiry_s < MIN_EXPIRY_S:
        raise _refused(
            invalid_value("spec.expirationSeconds", expiry_s, "may not specify a duration less than 10 minutes")
        )
    if expiry_s > MAX_EXPIRY_S:
        raise _refused(
            invalid_value("spec.expirationSeconds", expiry_s, "may not specify a duration larger than 2^32 seconds")
        )
    audiences = spec.get("audiences") or [ISSUER]
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise bad_request("spec.audiences must be a list of strings")
    return expiry_s, list(audiences)


def _refused(cause: Cause, name: str = "") -> StatusError:
    return invalid("TokenRequest", "authentication.k8s.io", name, [cause])
