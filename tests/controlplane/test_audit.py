"""Reading an audit log: what counts as one request, what it needed, and what was never needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.audit import Right, granted, of, read, refused, unused

AGENT = "system:serviceaccount:muster-system:muster-agent"
PODS_GET = Right("", "pods", "get")


def event(verb: str, resource: str, code: int, *, stage: str = "ResponseComplete", **target: Any) -> dict[str, Any]:
    return {
        "stage": stage,
        "verb": verb,
        "user": {"username": AGENT},
        "objectRef": {"resource": resource, "apiVersion": "v1", **target},
        "responseStatus": {"code": code},
    }


def log(folder: Path, *events: dict[str, Any], tail: str = "") -> Path:
    path = folder / "audit.log"
    path.write_text("".join(json.dumps(e) + "\n" for e in events) + tail)
    return path


def test_a_request_has_user_right_target_and_code(tmp_path: Path) -> None:
    (found,) = read(
        log(tmp_path, event("create", "pods", 201, subresource="eviction", namespace="training", name="p"))
    )
    assert (found.user, found.right) == (AGENT, Right("", "pods/eviction", "create"))
    assert (found.namespace, found.name, found.code) == ("training", "p", 201)


def test_a_watch_counts_once_and_when_it_starts(tmp_path: Path) -> None:
    started = event("watch", "nodes", 200, stage="ResponseStarted")
    ended = event("watch", "nodes", 200)
    assert len(read(log(tmp_path, started))) == 1
    assert len(read(log(tmp_path, started, ended))) == 1


def test_a_refused_watch_counts(tmp_path: Path) -> None:
    found = read(log(tmp_path, event("watch", "nodes", 403)))
    assert [r.right for r in refused(found)] == [Right("", "nodes", "watch")]


def test_what_is_no_resource_and_a_half_written_line_are_left_out(tmp_path: Path) -> None:
    other = {"stage": "ResponseComplete", "verb": "get", "user": {"username": AGENT}, "requestURI": "/version"}
    assert read(log(tmp_path, other, tail='{"stage": "Resp')) == []


def test_requests_are_told_apart_by_user(tmp_path: Path) -> None:
    foreign = event("get", "pods", 200) | {"user": {"username": "somebody"}}
    found = read(log(tmp_path, event("get", "pods", 200), foreign))
    assert len(of(found, AGENT)) == len(of(found, "somebody")) == 1


def test_an_apply_that_creates_needs_the_right_to_create(tmp_path: Path) -> None:
    created = read(log(tmp_path, event("patch", "nodehealths", 201, apiGroup="muster.dev")))
    changed = read(log(tmp_path, event("patch", "nodehealths", 200, apiGroup="muster.dev")))
    rules = [{"apiGroups": ["muster.dev"], "resources": ["nodehealths"], "verbs": ["create", "patch"]}]
    assert unused(rules, created) == []
    assert unused(rules, changed) == [Right("muster.dev", "nodehealths", "create")]


def test_a_right_is_unused_when_only_a_refused_request_named_it(tmp_path: Path) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list"]}]
    found = read(log(tmp_path, event("get", "pods", 200), event("list", "pods", 403), event("get", "nodes", 404)))
    assert unused(rules, found) == [Right("", "nodes", "list"), Right("", "pods", "list")]


def test_granted_rights_are_the_product_of_a_rule() -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "get"]}]
    assert granted(rules) == [PODS_GET]
    assert str(PODS_GET) == "get pods"


def test_a_wildcard_is_an_error() -> None:
    with pytest.raises(ValueError, match="wildcard"):
        granted([{"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}])
