"""The simulated API server over HTTP(S): the same store, as `kubectl` and any Kubernetes client see it."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from muster.errors import BadInputError
from muster.sim import discovery, openapi, rbac_bootstrap
from muster.sim.api_access import Access
from muster.sim.api_answers import encode, error_event, event_bytes
from muster.sim.api_faults import ConnectionDroppedError, Fault
from muster.sim.api_kinds import Kind
from muster.sim.api_paths import MAX_BODY_BYTES, Query, Target, Unreadable, accepted, parse_path, read_body, verb_of
from muster.sim.api_reviews import review
from muster.sim.api_routes import Answer, Call, serve
from muster.sim.api_status import StatusError, bad_request, method_not_allowed, page_not_found, unknown_resource
from muster.sim.api_watch import Watch, watch_options
from muster.sim.certificates import issue
from muster.sim.identities import ADMIN_GROUP
from muster.sim.kubeconfig import kubeconfig
from muster.sim.rbac import Attributes
from muster.sim.store import Store

_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
_JSON = "application/json"
MAX_WARNINGS = 20
"""Most warnings in one answer."""
_UNCACHED = {"Cache-Control": "no-cache, private"}


class ApiServer:
    """Serves a store until the context is left.

    `port` 0 takes a free one. With `tls` the server makes its own authority; clients find it in `ca_pem` and in the
    kubeconfig. `access` decides who may do what: by the roles and bindings in the store, of which the usual default
    ones are made, and by denials. The user `admin` always exists and may do everything.
    """

    def __init__(self, store: Store, port: int = 0, *, host: str = "127.0.0.1", tls: bool = True) -> None:
        self.access = Access(store)
        self.ca_pem = ""
        self.url = ""
        self._store = store
        self._host = host
        self._port = port
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self._watching: dict[asyncio.Task[Any], None] = {}
        self.access.add_user("admin", (ADMIN_GROUP,))
        rbac_bootstrap.ensure(store)

    async def __aenter__(self) -> ApiServer:
        app = web.Application(client_max_size=MAX_BODY_BYTES + 1)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        site = web.TCPSite(runner, self._host, self._port, ssl_context=self._ssl_context())
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            why = error.strerror or error
            raise BadInputError(f"Cannot listen on {self._host}:{self._port} ({why}); choose another port.") from None
        self._runner = runner
        port = runner.addresses[0][1]
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"{'https' if self._tls else 'http'}://{shown}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            for task in list(self._watching):
                task.cancel()
            await self._runner.cleanup()
            self._runner = None

    def _ssl_context(self) -> ssl.SSLContext | None:
        if not self._tls:
            return None
        issued = issue(self._host)
        self.ca_pem = issued.ca_pem
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "server.pem"
            path.touch(mode=0o600)
            path.write_text(issued.certificate_pem + issued.key_pem)
            context.load_cert_chain(path)
        return context

    def token(self, user: str = "admin") -> str:
        """The bearer token of a user, who is made known, without any rights, when new."""
        return self.access.token_of(user) or self.access.add_user(user)

    def kubeconfig(self, user: str = "admin", *, namespace: str = "") -> str:
        """A kubeconfig (YAML text) for a user, who is made known, without any rights, when new."""
        return kubeconfig(self.url, user, self.token(user), self.ca_pem, namespace=namespace)

    # Serving

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._route(request)
        except StatusError as error:
            return _failure(error)
        except RecursionError:
            return _failure(bad_request("the object is nested too deeply"))
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {MAX_BODY_BYTES}"
            return _failure(StatusError(413, "RequestEntityTooLarge", text))
        except ConnectionDroppedError:
            if request.transport is not None:
                request.transport.abort()
            raise asyncio.CancelledError from None

    async def _route(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, Query(dict(request.query))
        target = _target(path)
        user = self.access.user_of(request.headers.get("Authorization", ""))
        asked = _asked(request.method, path, target, query)
        headers = {name.lower(): value for name, value in request.headers.items()}
        user = self.access.impersonated(user, headers, request.headers.getall("Impersonate-Group", []), asked)
        self.access.check(user, asked)
        if target is None:
            return self._plain(request, path)
        content_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        call = Call(
            target=target,
            verb=verb_of(request.method, target, query),
            query=query,
            user=user,
            form=accepted(request.headers.get("Accept", "")),
            content_type=content_type,
            agent=request.headers.get("User-Agent", ""),
        )
        if request.can_read_body:
            call.body = read_body(await request.read(), content_type)
        fault = await self._before(call)
        if call.verb == "watch":
            return await self._watch(request, call, fault)
        try:
            answer = self._answer(call)
        except StatusError as error:
            return _failure(error, call.warnings)
        if fault is not None and fault.after_write:
            _fail(fault)
        return _warned(_bytes(answer.body, answer.code), call.warnings)

    def _plain(self, request: web.Request, path: str) -> web.Response:
        """The answer for a path that is no resource."""
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed("the server does not allow this method on the requested resource")
        if path.rstrip("/") == "/version":
            return _json(discovery.VERSION)
        if path in _HEALTH_PATHS or path.startswith(tuple(f"{health}/" for health in _HEALTH_PATHS)):
            return web.Response(text="ok")
        document = self._document(path, request.headers.get("Accept", ""))
        if document is None:
            raise page_not_found()
        return document

    def _answer(self, call: Call) -> Answer:
        target = call.target
        reviews = discovery.REVIEWS.get((target.group, target.version), ())
        if any(plural == target.plural for plural, _ in reviews):
            return Answer(201, encode(review(self._store, self.access, target, call.verb, _body(call), call.user)))
        if (target.group, target.plural, target.subresource) == ("", "serviceaccounts", "token"):
            if call.verb != "create":
                raise method_not_allowed("the server does not allow this method on the requested resource")
            return Answer(201, encode(self.access.tokens.issue(target.namespace, target.name, _body(call))))
        if call.applies and not target.subresource:
            self._check_creation(call)
        return serve(self._store, call)

    def _check_creation(self, call: Call) -> None:
        """Applying what does not exist yet needs the right to create it, too."""
        target = call.target
        kind = self._store.registry_kind(target.group, target.version, target.plural)
        if self._store.find(kind, (target.namespace if kind.namespaced else "", target.name)) is None:
            asked = Attributes("create", target.group, target.plural, "", target.namespace, target.name)
            self.access.check(call.user, asked)

    async def _before(self, call: Call) -> Fault | None:
        fault = self._store.faults(call.fault_request()) if self._store.faults is not None else None
        if fault is None:
            return None
        if fault.delay_s > 0:
            await self._store.clock.sleep(fault.delay_s)
        if not fault.after_write:
            _fail(fault)
        return fault

    async def _watch(self, request: web.Request, call: Call, fault: Fault | None) -> web.StreamResponse:
        target, include = call.target, call.query.text("includeObject")
        kind = self._watched_kind(call)
        watch = Watch(
            self._store, kind, target.namespace, watch_options(call.query, fault.drop_after_s if fault else None)
        )
        response = web.StreamResponse(headers={"Content-Type": _JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        task = asyncio.current_task()
        if task is not None:
            self._watching[task] = None
        try:
            async for batch in watch.batches():
                lines = [event_bytes(self._store, kind, item, call.form, include) for item in batch]
                await response.write(b"".join(lines))
        except StatusError as error:
            await response.write(error_event(error))
        except ConnectionResetError:
            return response
        finally:
            if task is not None:
                self._watching.pop(task, None)
        await response.write_eof()
        return response

    def _watched_kind(self, call: Call) -> Kind:
        target = call.target
        kind = self._store.registry_kind(target.group, target.version, target.plural)
        if target.namespace and not kind.namespaced:
            raise unknown_resource()
        return kind

    # Documents

    def _document(self, path: str, accept: str) -> web.Response | None:
        """Discovery and OpenAPI documents; None for other paths."""
        registry = self._store.registry
        parts = [unquote(part) for part in path.split("/") if part]
        match parts:
            case []:
                return _json({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]})
            case ["api"] | ["apis"]:
                core = parts == ["api"]
                if accepted(accept).as_ == "APIGroupDiscoveryList":
                    return _json(discovery.aggregated(registry, core=core), content_type=discovery.AGGREGATED)
                return _json(discovery.core_versions() if core else discovery.group_list(registry))
            case ["apis", group]:
                found = discovery.group_document(registry, group)
                return None if found is None else _json(found)
            case ["api", version]:
                return _found(discovery.resource_list(registry, "", version))
            case ["apis", group, version]:
                return _found(discovery.resource_list(registry, group, version))
            case ["openapi", "v2"]:
                accepted(accept)
                return _json(
                    {"swagger": "2.0", "info": {"title": "Simulated Kubernetes", "version": "1"}, "paths": {}}
                )
            case ["openapi", "v3"]:
                return _json(openapi.index(registry))
            case ["openapi", "v3", *rest]:
                return _found(openapi.document(registry, "/".join(rest)))
            case _:
                return None


def _target(path: str) -> Target | None:
    """The resource that a path names; None for other paths."""
    if not path.startswith(("/api/", "/apis/")):
        return None
    try:
        target = parse_path(path)
    except StatusError:
        return None
    return target if target.plural else None


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def _asked(method: str, path: str, target: Target | None, query: Query) -> Attributes:
    """The request in the words of role rules."""
    if target is None:
        return Attributes(method.lower(), path=path)
    name, namespace = target.name, target.namespace
    verb = _VERBS.get(method, "get")
    if not name and verb in ("get", "delete"):
        verb = "deletecollection" if verb == "delete" else "watch" if query.flag("watch") else "list"
        # One object alone, by a field selector, needs no more rights than reading it by name.
        for term in query.text("fieldSelector").split(","):
            key, _, value = term.replace("==", "=").partition("=")
            if key.strip() == "metadata.name" and value.strip():
                name = value.strip()
    if target.plural == "namespaces" and not target.group:
        namespace = target.name
    return Attributes(verb, target.group, target.plural, target.subresource, namespace, name)


def _body(call: Call) -> dict[str, Any]:
    """The object that a request holds, empty without one. Raises StatusError 400."""
    if call.body is None:
        return {}
    if not isinstance(call.body, dict):
        raise bad_request(call.body.why if isinstance(call.body, Unreadable) else "the body must be an object")
    return call.body


def _fail(fault: Fault) -> None:
    if fault.lost:
        raise ConnectionDroppedError
    if fault.error is not None:
        raise fault.error


def _quoted(text: str) -> str:
    """Text as it may stand in a Warning header."""
    plain = "".join(character if " " <= character <= "~" else "?" for character in text[:256])
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def _bytes(body: bytes, code: int = 200) -> web.Response:
    return web.Response(body=body, status=code, content_type=_JSON, headers=_UNCACHED)


def _warned(response: web.Response, warnings: Sequence[str]) -> web.Response:
    for text in warnings[:MAX_WARNINGS]:
        response.headers.add("Warning", f'299 - "{_quoted(text)}"')
    return response


def _json(value: Any, code: int = 200, *, content_type: str = _JSON) -> web.Response:
    return web.Response(body=encode(value), status=code, headers={**_UNCACHED, "Content-Type": content_type})


def _found(document: Any) -> web.Response:
    if document is None:
        raise unknown_resource()
    return _json(document)


def _failure(error: StatusError, warnings: Sequence[str] = ()) -> web.Response:
    if error.plain:
        return web.Response(text=error.message.rstrip("\n") + "\n", status=error.code)
    response = _json(error.to_json(), error.code)
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return _warned(response, warnings)
