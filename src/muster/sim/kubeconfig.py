"""A kubeconfig for the simulated API server."""

from __future__ import annotations

import base64

from muster import yamlio

NAME = "muster-sim"
"""Of the cluster and of the context."""


def kubeconfig(url: str, user: str, token: str, ca_pem: str = "", *, name: str = NAME, namespace: str = "") -> str:
    """YAML text with one cluster, one user and one context. `ca_pem` empty: the server speaks plain HTTP."""
    cluster: dict[str, str] = {"server": url}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem.encode()).decode()
    context = {"cluster": name, "user": user}
    if namespace:
        context["namespace"] = namespace
    return yamlio.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": name, "context": context}],
            "current-context": name,
        }
    )
