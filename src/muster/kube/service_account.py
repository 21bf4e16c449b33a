"""The service account of the pod that this process runs in: where the API server is, and how to log in."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.errors import BadInputError

FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@dataclass(frozen=True)
class ServiceAccount:
    """`host` and `port` of the API server, and the folder that the kubelet keeps up to date."""

    host: str
    port: int
    folder: Path

    @property
    def server(self) -> str:
        """The address of the API server."""
        return f"https://{self.authority}"

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def token(self) -> str:
        """The token of this moment; the kubelet replaces it long before it expires. Raises OSError."""
        return (self.folder / "token").read_text().strip()

    def tls(self) -> ssl.SSLContext:
        """Trusts the cluster's authority and nobody else. Raises BadInputError."""
        authority = self.folder / "ca.crt"
        try:
            return ssl.create_default_context(cafile=authority)
        except (OSError, ssl.SSLError) as error:
            raise BadInputError(f"The service account of this pod cannot be used: {authority}: {error}.") from error


def account_of_pod(folder: Path = FOLDER, environment: Mapping[str, str] = os.environ) -> ServiceAccount | None:
    """The account, or None outside of a pod, when KUBECONFIG asks for something else, or behind a proxy.

    Raises BadInputError when the port is none.
    """
    if environment.get("KUBECONFIG") or any(environment.get(name) for name in PROXIES):
        return None
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        return None
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadInputError(f"KUBERNETES_SERVICE_PORT is no port ({port[:20]!r}); the kubelet sets it in every pod.")
    return ServiceAccount(host, int(port), folder)
