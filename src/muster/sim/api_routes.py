"""What the API server does for each request to a resource, between the parsed request and the encoded answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from muster.kube.api import Object, PatchType
from muster.sim.api_access import Access, User
from muster.sim.api_answers import encode, list_bytes, object_bytes, success
from muster.sim.api_deletion import DeleteOptions
from muster.sim.api_faults import Request
from muster.sim.api_kinds import Kind
from muster.sim.api_lists import ListOptions
from muster.sim.api_paths import Form, Query, Target
from muster.sim.api_status import (
    bad_request,
    method_not_allowed,
    not_implemented,
    unknown_resource,
    unsupported_media_type,
)
from muster.sim.api_watch import WatchOptions
from muster.sim.discovery import REVIEWS
from muster.sim.store import Store, WriteOptions

APPLY_TYPE = "application/apply-patch+yaml"


@dataclass
class Call:
    """One request to a resource, parsed. `verb` is in the words of role rules; `body` is a JSON value or None."""

    target: Target
    verb: str
    query: Query
    user: User
    form: Form
    content_type: str = ""
    agent: str = ""
    body: Any = None
    warnings: list[str] = field(default_factory=list)

    @property
    def manager(self) -> str:
        return self.query.text("fieldManager") or self.agent.partition("/")[0][:128] or "unknown"

    @property
    def applies(self) -> bool:
        return self.verb == "patch" and self.content_type == APPLY_TYPE

    def request(self) -> Request:
        """The request as role rules see it."""
        t = self.target
        return Request(self.verb, t.group, t.plural, t.namespace, t.name, t.subresource, self.user.name, self.manager)

    def fault_request(self) -> Request:
        """The request as the fault hook sees it: with the verbs `apply` and `evict`."""
        verb = "apply" if self.applies else "evict" if self.target.subresource == "eviction" else self.verb
        t = self.target
        return Request(verb, t.group, t.plural, t.namespace, t.name, t.subresource, self.user.name, self.manager)


@dataclass(frozen=True)
class Answer:
    code: int
    body: bytes


def serve(store: Store, access: Access, call: Call) -> Answer:
    """Carry out everything but a watch. Raises StatusError."""
    target = call.target
    for plural, _ in REVIEWS.get((target.group, target.version), ()):
        if plural == target.plural:
            return _review(access, call)
    if (target.group, target.version, target.plural) == ("", "v1", "bindings"):
        return _bind(store, call)
    kind = store.registry_kind(target.group, target.version, target.plural)
    if target.namespace and not kind.namespaced:
        raise unknown_resource()
    if target.subresource:
        return _serve_subresource(store, kind, call)
    match call.verb:
        case "get":
            version = store.get(kind, target.name, target.namespace)
            return Answer(200, object_bytes(store, kind, version, call.form, call.query.text("includeObject")))
        case "list":
            found = store.list(kind, target.namespace, list_options(call))
            return Answer(200, list_bytes(store, found, call.form, call.query.text("includeObject")))
        case "create":
            version = store.create(kind, _object(call), target.namespace, _write_options(call))
            return Answer(201, object_bytes(store, kind, version, call.form))
        case "update" | "patch":
            return _write(store, kind, call)
        case "delete":
            version, gone = store.delete(kind, target.name, target.namespace, _delete_options(call))
            return Answer(200, success(kind, version) if gone and kind.plural != "pods" else store.raw(kind, version))
        case "deletecollection":
            deleted = store.delete_collection(kind, target.namespace, list_options(call), _delete_options(call))
            return Answer(200, list_bytes(store, deleted, Form()))
        case _:
            raise method_not_allowed("the server does not allow this method on the requested resource")


def _review(access: Access, call: Call) -> Answer:
    if call.verb != "create":
        raise method_not_allowed("the server does not allow this method on the requested resource")
    return Answer(201, encode(access.review(call.target.plural, _object(call), call.user)))


def _bind(store: Store, call: Call) -> Answer:
    """`bindings` is only created: the name in the body is the pod's."""
    if call.verb != "create":
        raise method_not_allowed("the server does not allow this method on the requested resource")
    body = _object(call)
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise bad_request("a Binding needs the name of its pod in metadata.name")
    store.bind(name, call.target.namespace, body, _write_options(call))
    return Answer(201, _SUCCESS)


def _serve_subresource(store: Store, kind: Kind, call: Call) -> Answer:
    target = call.target
    match target.subresource, call.verb:
        case "status", "get" if kind.has_status:
            return Answer(200, store.raw(kind, store.get(kind, target.name, target.namespace)))
        case (("status" | "finalize"), ("update" | "patch")):
            return _write(store, kind, call)
        case "eviction", "create" if kind.plural == "pods":
            store.evict(target.name, target.namespace, _object(call), dry_run=_dry_run(call))
            return Answer(201, _SUCCESS)
        case "binding", "create" if kind.plural == "pods":
            store.bind(target.name, target.namespace, _object(call), _write_options(call))
            return Answer(201, _SUCCESS)
        case _, _:
            raise not_implemented(f"{call.verb} of the subresource {kind.plural}/{target.subresource}")


_SUCCESS = encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


def _write(store: Store, kind: Kind, call: Call) -> Answer:
    target, options = call.target, _write_options(call)
    subresource = target.subresource
    if call.verb == "update":
        version = store.update(kind, target.name, _object(call), target.namespace, options, subresource=subresource)
        return Answer(200, object_bytes(store, kind, version, call.form))
    if call.applies:
        if not call.query.text("fieldManager"):
            options.manager = ""
        version, created = store.apply(
            kind,
            target.name,
            _object(call),
            target.namespace,
            options,
            force=call.query.flag("force"),
            subresource=subresource,
        )
        return Answer(201 if created else 200, object_bytes(store, kind, version, call.form))
    if call.content_type not in set(PatchType):
        raise unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, "
            "application/apply-patch+yaml"
        )
    version = store.patch(
        kind, target.name, call.body, call.content_type, target.namespace, options, subresource=subresource
    )
    return Answer(200, object_bytes(store, kind, version, call.form))


def _object(call: Call) -> Object:
    if not isinstance(call.body, dict):
        raise bad_request("the body of the request must be an object")
    return call.body


def _dry_run(call: Call) -> bool:
    options = call.body.get("deleteOptions") if isinstance(call.body, dict) else None
    return call.query.dry_run() or bool(isinstance(options, dict) and options.get("dryRun"))


def _write_options(call: Call) -> WriteOptions:
    return WriteOptions(
        manager=call.manager,
        user=call.user.name,
        dry_run=call.query.dry_run(),
        field_validation=call.query.text("fieldValidation") or "Warn",
        warnings=call.warnings,
    )


def list_options(call: Call) -> ListOptions:
    query = call.query
    return ListOptions(
        label_selector=query.text("labelSelector"),
        field_selector=query.text("fieldSelector"),
        limit=query.number("limit") or 0,
        continue_token=query.text("continue"),
        resource_version=query.text("resourceVersion"),
        resource_version_match=query.text("resourceVersionMatch"),
    )


def watch_options(call: Call, drop_after_s: float | None) -> WatchOptions:
    query = call.query
    timeout = query.number("timeoutSeconds")
    field_selector = query.text("fieldSelector")
    return WatchOptions(
        resource_version=query.text("resourceVersion"),
        label_selector=query.text("labelSelector"),
        field_selector=field_selector,
        timeout_s=float(timeout) if timeout else 1800.0,
        bookmarks=query.flag("allowWatchBookmarks"),
        send_initial_events=query.flag_or_none("sendInitialEvents"),
        drop_after_s=drop_after_s,
    )


def _delete_options(call: Call) -> DeleteOptions:
    body = call.body if isinstance(call.body, dict) else {}
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", call.query.number("gracePeriodSeconds"))
    propagation = body.get("propagationPolicy") or call.query.text("propagationPolicy") or "Background"
    if body.get("orphanDependents") is True:
        propagation = "Orphan"
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise bad_request("gracePeriodSeconds must be a whole number")
    if not isinstance(preconditions, dict):
        raise bad_request("preconditions must be an object")
    return DeleteOptions(
        grace_period_s=grace,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        propagation=str(propagation),
        dry_run=bool(body.get("dryRun")) or call.query.dry_run(),
    )
