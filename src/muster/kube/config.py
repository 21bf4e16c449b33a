"""Which API server to talk to: the kubeconfig files, the service account of a pod, or an error in one sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from muster import yamlio
from muster.errors import BadInputError

DEFAULT_KUBECONFIG = "~/.kube/config"
_FILES = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
_REFUSED = {
    "as": "impersonation ('as')",
    "auth-provider": "'auth-provider', which kubectl dropped as well",
}


class Target(msgspec.Struct, frozen=True):
    """One API server and how to log in. `proxy` and `tls_server_name` are empty when not set."""

    single: SingleConfig
    source: str
    proxy: str = ""
    tls_server_name: str = ""

    @property
    def server(self) -> str:
        return self.single.cluster.server


def load_target(
    path: Path | None = None, context: str | None = None, *, service_account: Path = Path(SERVICE_ACCOUNT)
) -> Target:
    """Find the API server as kubectl does: `path`, or else KUBECONFIG, the pod's service account, ~/.kube/config.

    `service_account` is where a pod finds its token and its cluster's authority. Raises BadInputError when there is
    none or when it cannot be used.
    """
    if path is not None:
        return _from_files([path], context)
    if listed := os.environ.get("KUBECONFIG", ""):
        files = [Path(part) for part in listed.split(os.pathsep) if part]
        # kubectl skips files of the list that do not exist, unless none does.
        return _from_files([file for file in files if file.expanduser().exists()] or files[:1], context)
    if context is None and "KUBERNETES_SERVICE_HOST" in os.environ and (service_account / "token").exists():
        return _from_service_account(service_account)
    default = Path(DEFAULT_KUBECONFIG).expanduser()
    if not default.exists():
        raise BadInputError("No kubeconfig found; give --kubeconfig FILE or set KUBECONFIG.")
    return _from_files([default], context)


def _from_service_account(folder: Path) -> Target:
    try:
        single = KubeConfig.from_service_account(folder).get()
    except (ConfigError, KeyError, OSError) as error:
        raise BadInputError(f"The service account of this pod cannot be used: {error}.") from error
    assert single is not None  # noqa: S101 - from_service_account sets a current context
    return Target(single, "the service account of this pod")


def _from_files(files: list[Path], context: str | None) -> Target:
    source = os.pathsep.join(map(str, files))
    merged: dict[str, Any] = {"clusters": [], "users": [], "contexts": []}
    for file in files:
        _merge(merged, _read(file.expanduser()), file.expanduser())
    name = context or merged.get("current-context")
    if not name:
        raise BadInputError(f"Kubeconfig {source} sets no current context; give --context NAME.")
    known = {entry["name"]: entry["context"] for entry in merged["contexts"]}
    if name not in known:
        raise BadInputError(
            f"Kubeconfig {source} has no context {name!r}; it has: {', '.join(sorted(known)) or 'none'}."
        )
    cluster = _named(merged, "cluster", known[name].get("cluster"), source)
    user = _named(merged, "user", known[name]["user"], source) if known[name].get("user") else {}
    for key, what in _REFUSED.items():
        if user.get(key):
            raise BadInputError(f"Kubeconfig {source} uses {what}; Muster does not support it.")
    try:
        single = KubeConfig.from_dict(merged, fname=str(files[0].expanduser().absolute())).get(name)
    except (ConfigError, msgspec.MsgspecError, KeyError, TypeError) as error:
        raise BadInputError(f"Kubeconfig {source} cannot be used: {error}.") from error
    assert single is not None  # noqa: S101 - the name was found above
    if not single.cluster.server.startswith(("https://", "http://")):
        raise BadInputError(f"Kubeconfig {source} has no usable server address for context {name!r}.")
    if single.user is None:
        single = single._replace(user=User())
    return Target(
        single,
        source,
        proxy=str(cluster.get("proxy-url") or ""),
        tls_server_name=str(cluster.get("tls-server-name") or ""),
    )


def _read(file: Path) -> dict[str, Any]:
    content = yamlio.load(file)
    if not isinstance(content, dict):
        raise BadInputError(f"Kubeconfig {file} is not a kubeconfig: it holds no mapping.")
    for section in ("clusters", "users", "contexts"):
        entries = content.get(section)
        single = section[:-1]
        if entries is not None and not (
            isinstance(entries, list)
            and all(
                isinstance(e, dict) and isinstance(e.get("name"), str) and _is_map(e.get(single)) for e in entries
            )
        ):
            raise BadInputError(f"Kubeconfig {file} is broken: {section!r} must be a list of name and {single}.")
    return content


def _is_map(value: object) -> bool:
    return value is None or isinstance(value, dict)


def _merge(merged: dict[str, Any], content: dict[str, Any], file: Path) -> None:
    """Add one file; the first file that names something wins, relative paths are relative to their own file."""
    for section in ("clusters", "users", "contexts"):
        single = section[:-1]
        taken = {entry["name"] for entry in merged[section]}
        for entry in content.get(section) or []:
            if entry["name"] not in taken:
                body = dict(entry.get(single) or {})
                for key in _FILES.get(single, ()):
                    if isinstance(body.get(key), str) and body[key]:
                        body[key] = str(file.absolute().parent / body[key])
                merged[section].append({"name": entry["name"], single: body})
    if not merged.get("current-context"):
        merged["current-context"] = content.get("current-context")


def _named(merged: dict[str, Any], single: str, name: object, source: str) -> dict[str, Any]:
    for entry in merged[f"{single}s"]:
        if entry["name"] == name:
            body: dict[str, Any] = entry[single]
            return body
    raise BadInputError(f"Kubeconfig {source} names the {single} {name!r} but does not define it.")
