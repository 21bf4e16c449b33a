"""Keys, certificates and tokens of one control plane; made anew for each, good for a day."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from muster.sim.certificates import issue
from muster.sim.kubeconfig import kubeconfig

ADMIN = "admin"
NOBODY = "nobody"
"""Known to the server and allowed nothing."""
CONTROLLER_MANAGER_USER = "system:kube-controller-manager"
SCHEDULER_USER = "system:kube-scheduler"
GROUPS = {
    ADMIN: ("system:masters",),
    NOBODY: (),
    # With credentials of their own for each controller these two would need less; here they share one identity.
    CONTROLLER_MANAGER_USER: ("system:masters",),
    SCHEDULER_USER: (),
}


@dataclass
class Credentials:
    """Files below `folder` that the API server reads, and what clients need."""

    folder: Path
    ca_pem: str = ""
    tokens: dict[str, str] = field(default_factory=dict)

    def write(self) -> None:
        """Make everything and write it, readable by us alone."""
        issued = issue("127.0.0.1")
        self.ca_pem = issued.ca_pem
        self._private("server.crt", issued.certificate_pem)
        self._private("server.key", issued.key_pem)
        self._private("ca.crt", issued.ca_pem)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._private("service-accounts.key", pem.decode())
        self.tokens = {user: secrets.token_urlsafe(24) for user in GROUPS}
        lines = [f'{token},{user},{user}-uid,"{",".join(GROUPS[user])}"\n' for user, token in self.tokens.items()]
        self._private("tokens.csv", "".join(lines))

    def kubeconfig(self, url: str, user: str, token: str = "") -> str:
        """A kubeconfig (YAML text) for one of our users, or for any `token`."""
        return kubeconfig(url, user, token or self.tokens[user], self.ca_pem)

    def _private(self, name: str, text: str) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
