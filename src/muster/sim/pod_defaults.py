"""Defaults of pod specs: of pods, and of the templates of workloads.

Source of the values: the defaults in the published Kubernetes API reference, v1.37.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Fields = dict[str, Any]

_SPEC: Mapping[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_CONTAINER: Mapping[str, Any] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBE: Mapping[str, Any] = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_READABLE = 0o644
"""Mode of files in volumes of configuration."""
_TOKEN_S = 3600
"""Life of a projected service account token (seconds)."""


def _with(value: Fields, defaults: Mapping[str, Any]) -> Fields:
    missing = {name: part for name, part in defaults.items() if name not in value}
    return {**value, **missing} if missing else value


def pod_spec(spec: Fields) -> Fields:
    """The spec of a pod with defaults: a template's and, besides, requests for what has limits."""
    filled = template_spec(_with(spec, {"enableServiceLinks": True}))
    host = filled.get("hostNetwork") is True
    for name in ("containers", "initContainers"):
        if filled.get(name):
            filled = {**filled, name: [_requesting(_hosting(container, host)) for container in filled[name]]}
    return filled


def template_spec(spec: Fields) -> Fields:
    """The spec of a workload's pods with defaults."""
    filled = _with(spec, _SPEC)
    if filled["terminationGracePeriodSeconds"] < 0:
        filled = {**filled, "terminationGracePeriodSeconds": 1}
    account = filled.get("serviceAccountName") or filled.get("serviceAccount")
    if account:
        filled = {**filled, "serviceAccountName": account, "serviceAccount": account}
    for name in ("containers", "initContainers", "ephemeralContainers"):
        if filled.get(name):
            filled = {**filled, name: [_container(container) for container in filled[name]]}
    if filled.get("volumes"):
        filled = {**filled, "volumes": [_volume(volume) for volume in filled["volumes"]]}
    return filled


def _container(container: Fields) -> Fields:
    filled = _with(container, _CONTAINER)
    filled = _with(filled, {"imagePullPolicy": _pull_policy(filled.get("image", ""))})
    if filled.get("ports"):
        filled = {**filled, "ports": [_with(port, {"protocol": "TCP"}) for port in filled["ports"]]}
    if filled.get("env"):
        filled = {**filled, "env": [_variable(variable) for variable in filled["env"]]}
    for name in _PROBES:
        if name in filled:
            filled = {**filled, name: _handler(_with(filled[name], _PROBE))}
    if "lifecycle" in filled:
        hooks = {
            name: _handler(hook) if isinstance(hook, dict) else hook for name, hook in filled["lifecycle"].items()
        }
        filled = {**filled, "lifecycle": hooks}
    return filled


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"


def _hosting(container: Fields, host_network: bool) -> Fields:
    """On the host's network, every port is one of the host's."""
    if not host_network or not container.get("ports"):
        return container
    return {**container, "ports": [_with(port, {"hostPort": port["containerPort"]}) for port in container["ports"]]}


def _variable(variable: Fields) -> Fields:
    source = variable.get("valueFrom")
    if not isinstance(source, dict) or not isinstance(source.get("fieldRef"), dict):
        return variable
    return {**variable, "valueFrom": {**source, "fieldRef": _with(source["fieldRef"], {"apiVersion": "v1"})}}


def _handler(handler: Fields) -> Fields:
    if isinstance(handler.get("httpGet"), dict):
        return {**handler, "httpGet": _with(handler["httpGet"], {"path": "/", "scheme": "HTTP"})}
    if isinstance(handler.get("grpc"), dict):
        return {**handler, "grpc": _with(handler["grpc"], {"service": ""})}
    return handler


def _requesting(container: Fields) -> Fields:
    resources = container["resources"]
    limits = resources.get("limits")
    if not limits:
        return container
    requests = {**limits, **(resources.get("requests") or {})}
    return (
        container
        if requests == resources.get("requests")
        else {
            **container,
            "resources": {**resources, "requests": requests},
        }
    )


def _volume(volume: Fields) -> Fields:
    if set(volume) == {"name"}:
        return {**volume, "emptyDir": {}}
    filled = dict(volume)
    for name in ("configMap", "secret", "downwardAPI", "projected"):
        if isinstance(volume.get(name), dict):
            filled[name] = _with(volume[name], {"defaultMode": _READABLE})
    if isinstance(volume.get("hostPath"), dict):
        filled["hostPath"] = _with(volume["hostPath"], {"type": ""})
    if "downwardAPI" in filled:
        filled["downwardAPI"] = _downward(filled["downwardAPI"])
    if "projected" in filled:
        sources = [_projection(source) for source in filled["projected"].get("sources") or ()]
        filled["projected"] = {**filled["projected"], "sources": sources or None}
    return filled if filled != volume else volume


def _projection(source: Fields) -> Fields:
    token, downward = source.get("serviceAccountToken"), source.get("downwardAPI")
    if isinstance(token, dict):
        return {**source, "serviceAccountToken": _with(token, {"expirationSeconds": _TOKEN_S})}
    if isinstance(downward, dict):
        return {**source, "downwardAPI": _downward(downward)}
    return source


def _downward(source: Fields) -> Fields:
    items = source.get("items")
    if not items:
        return source
    named = [
        {**item, "fieldRef": _with(item["fieldRef"], {"apiVersion": "v1"})}
        if isinstance(item.get("fieldRef"), dict)
        else item
        for item in items
    ]
    return {**source, "items": named}
