"""What the API server does for each request to a resource, between the parsed request and the encoded answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from muster.kube.api import Object
from muster.sim import admission, api_eviction
from muster.sim.api_answers import encode, list_bytes, object_bytes, success
from muster.sim.api_decoding import summary, unreadable, unrecognized
from muster.sim.api_deletion import RETURNS_OBJECT, DeleteOptions, options_of
from muster.sim.api_faults import Request
from muster.sim.api_kinds import Kind
from muster.sim.api_lists import list_options
from muster.sim.api_patches import accepted_patches
from muster.sim.api_paths import Doubled, Form, Query, Target, Unreadable, check_write_options
from muster.sim.api_status import (
    StatusError,
    bad_request,
    method_not_allowed,
    not_found,
    not_implemented,
    page_not_found,
    unknown_format,
    unknown_resource,
)
from muster.sim.api_writes import refuse_unsupported
from muster.sim.identities import User
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


BODY_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
"""Media types of objects in a request."""


def serve(store: Store, call: Call) -> Answer:
    """Carry out everything but a watch and what the front end answers itself. Raises StatusError."""
    target = call.target
    if (target.group, target.version, target.plural) == ("", "v1", "bindings"):
        return _bind(store, call)
    kind = _kind(store, call)
    if call.verb in _OPTIONS:
        check_write_options(call.query, _OPTIONS[call.verb], applies=call.applies)
    if call.verb in ("create", "update") and call.content_type and call.content_type not in BODY_TYPES:
        raise unknown_format(BODY_TYPES)
    if target.subresource:
        return _serve_subresource(store, kind, call)
    match call.verb:
        case "get":
            version = store.get(kind, target.name, target.namespace)
            return Answer(200, object_bytes(store, kind, version, call.form, call.query.text("includeObject")))
        case "list":
            found = store.list(kind, target.namespace, list_options(call.query))
            return Answer(200, list_bytes(store, found, call.form, call.query.text("includeObject")))
        case "create":
            version = store.create(kind, body_object(call, kind), target.namespace, _write_options(call))
            return Answer(201, object_bytes(store, kind, version, call.form))
        case "update" | "patch":
            return _write(store, kind, call)
        case "delete":
            version, gone = store.delete(kind, target.name, target.namespace, _delete_options(call))
            whole = not gone or kind.plural in RETURNS_OBJECT
            return Answer(200, store.raw(kind, version) if whole else success(kind, version))
        case "deletecollection":
            options = _delete_options(call)
            deleted = store.delete_collection(kind, target.namespace, list_options(call.query), options)
            return Answer(200, list_bytes(store, deleted, Form()))
        case _:
            raise method_not_allowed()


_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


def _kind(store: Store, call: Call) -> Kind:
    """The kind that a path names. Raises StatusError 404 and, for writes without the needed namespace, 405."""
    target = call.target
    kind = store.registry.find(target.group, target.version, target.plural)
    if kind is None:
        known = any(other.group == target.group for other in store.registry.all())
        raise unknown_resource() if known else page_not_found()
    if target.namespace and not kind.namespaced:
        raise unknown_resource()
    if kind.namespaced and not target.namespace:
        if target.name:
            raise unknown_resource()
        if call.verb in ("create", "deletecollection"):
            raise method_not_allowed()
    return kind


def _bind(store: Store, call: Call) -> Answer:
    """`bindings` is only created: the name in the body is the pod's."""
    if call.verb != "create":
        raise method_not_allowed()
    body = call.body if isinstance(call.body, dict) else {}
    api_eviction.bind_by_name(store, body, call.target.namespace, _write_options(call))
    return Answer(201, _SUCCESS)


def _serve_subresource(store: Store, kind: Kind, call: Call) -> Answer:
    target = call.target
    match target.subresource, call.verb:
        case "status", "get" if kind.has_status:
            return Answer(200, store.raw(kind, store.get(kind, target.name, target.namespace)))
        case (("status" | "finalize"), ("update" | "patch")) if target.subresource in kind.subresources:
            return _write(store, kind, call)
        case (("eviction" | "binding"), "create") if kind.plural == "pods":
            body = _plain_object(call)
            admission.validate(store, kind, body, None, _write_options(call), target.subresource)
            if target.subresource == "eviction":
                store.evict(target.name, target.namespace, body, dry_run=_dry_run(call))
            else:
                store.bind(target.name, target.namespace, body, _write_options(call))
            return Answer(201, _SUCCESS)
        case _, _:
            raise _no_subresource(kind, call)


def _no_subresource(kind: Kind, call: Call) -> StatusError:
    """What is answered for a subresource that there is not, or not with this verb."""
    target = call.target
    if kind.custom is not None and target.subresource in ("status", "scale"):
        return not_found(kind.plural, kind.group, target.name)
    if target.subresource in kind.subresources and target.subresource != "log":
        return method_not_allowed()
    try:
        refuse_unsupported(kind, target.subresource)
    except StatusError as error:
        return error
    if target.subresource == "log":
        return not_implemented(f"{call.verb} of the subresource {kind.plural}/{target.subresource}")
    return unknown_resource()


_SUCCESS = encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


def _write(store: Store, kind: Kind, call: Call) -> Answer:
    target, options = call.target, _write_options(call)
    subresource = target.subresource
    if call.verb == "update":
        obj = body_object(call, kind)
        existed = store.find(kind, (target.namespace, target.name)) is not None
        version = store.update(kind, target.name, obj, target.namespace, options, subresource=subresource)
        return Answer(200 if existed else 201, object_bytes(store, kind, version, call.form))
    if call.applies:
        if not call.query.text("fieldManager"):
            options.manager = ""
        version, created = store.apply(
            kind,
            target.name,
            body_object(call, kind),
            target.namespace,
            options,
            force=call.query.flag("force"),
            subresource=subresource,
        )
        return Answer(201 if created else 200, object_bytes(store, kind, version, call.form))
    version = store.patch(
        kind,
        target.name,
        _patch_body(call, kind),
        call.content_type,
        target.namespace,
        options,
        subresource=subresource,
    )
    return Answer(200, object_bytes(store, kind, version, call.form))


def _patch_body(call: Call, kind: Kind) -> Any:
    """The patch in a request. Raises StatusError: 400, 415."""
    if call.content_type not in accepted_patches(kind):
        if kind.custom is not None:
            raise unknown_format(accepted_patches(kind))
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", detailed=True)
    if isinstance(call.body, Unreadable) and call.body.null:
        return None
    if call.body is None or isinstance(call.body, Unreadable):
        raise bad_request("invalid JSON patch")
    return call.body


def body_object(call: Call, kind: Kind) -> Object:
    """The object in the body of a request. Raises StatusError 400 when there is none."""
    body = call.body
    if body is None:
        raise unrecognized(kind, "couldn't get version/kind; json parse error: unexpected end of JSON input", b"")
    if isinstance(body, Unreadable):
        if not body.null:
            raise unrecognized(kind, body.why, body.raw)
        if kind.custom is not None:
            raise unrecognized(kind, "Object 'Kind' is missing in 'null'", body.raw)
        return {}
    if isinstance(body, Doubled) and call.query.text("fieldValidation") != "Ignore":
        told = [f'duplicate field "{path}"' for path in body.paths]
        if call.query.text("fieldValidation") == "Strict":
            raise unreadable(kind, "strict decoding error: " + ", ".join(told))
        call.warnings += told
    found: Object = body
    return found


def _plain_object(call: Call) -> Object:
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
        identity=call.user,
        dry_run=call.query.dry_run(),
        field_validation=call.query.text("fieldValidation") or "Warn",
        warnings=call.warnings,
    )


def _delete_options(call: Call) -> DeleteOptions:
    body = call.body
    if isinstance(body, Unreadable) and not body.null:
        raise bad_request(f"{body.why} ({summary(body.raw)})")
    if isinstance(body, dict) and body.get("kind") not in (None, "", "DeleteOptions"):
        version = body.get("apiVersion") or "v1"
        raise bad_request(
            f'no kind "{body["kind"]}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    return options_of(None if isinstance(body, Unreadable) else body, call.query.values, call.user, call.warnings)
