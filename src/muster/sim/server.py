"""The simulated API server over HTTP(S): the same store, as `kubectl` and any Kubernetes client see it."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from muster.errors import BadInputError
from muster.sim import discovery, openapi
from muster.sim.api_access import ADMIN_GROUP, Access
from muster.sim.api_answers import encode, error_event, event_bytes
from muster.sim.api_faults import ConnectionDroppedError, Fault
from muster.sim.api_kinds import Kind
from muster.sim.api_paths import MAX_BODY_BYTES, Query, accepted, parse_path, read_body, verb_of
from muster.sim.api_routes import Call, serve, watch_options
from muster.sim.api_status import StatusError, bad_request, unknown_resource
from muster.sim.api_watch import Watch
from muster.sim.certificates import issue
from muster.sim.kubeconfig import kubeconfig
from muster.sim.store import Store

_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
_JSON = "application/json"


class ApiServer:
    """Serves a store until the context is left.

    `port` 0 takes a free one. With `tls` the server makes its own authority; clients find it in `ca_pem` and in the
    kubeconfig. `access` holds users and denials; the user `admin` always exists.
    """

    def __init__(self, store: Store, port: int = 0, *, host: str = "127.0.0.1", tls: bool = True) -> None:
        self.access = Access()
        self.ca_pem = ""
        self.url = ""
        self._store = store
        self._host = host
        self._port = port
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self._watching: dict[asyncio.Task[Any], None] = {}
        self.access.add_user("admin", (ADMIN_GROUP,))

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
        """The bearer token of a user, who is made known when new."""
        return self.access.token_of(user) or self.access.add_user(user)

    def kubeconfig(self, user: str = "admin", *, namespace: str = "") -> str:
        """A kubeconfig (YAML text) for a user, who is made known when new."""
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
        path = request.path
        if path in _OPEN_PATHS or path.startswith(("/livez/", "/readyz/")):
            return _json(discovery.VERSION) if path == "/version" else web.Response(text="ok")
        user = self.access.user_of(request.headers.get("Authorization", ""))
        if request.method == "GET" and (document := self._document(path, request.headers.get("Accept", ""))):
            return document
        query = Query(dict(request.query))
        target = parse_path(path)
        if not target.plural:
            raise unknown_resource()
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
        self.access.check(call.request())
        fault = await self._before(call)
        if call.verb == "watch":
            return await self._watch(request, call, fault)
        answer = serve(self._store, self.access, call)
        if fault is not None and fault.after_write:
            _fail(fault)
        headers = [("Warning", f'299 - "{_quoted(text)}"') for text in call.warnings[:20]]
        return _bytes(answer.body, answer.code, headers)

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
        watch = Watch(self._store, kind, target.namespace, watch_options(call, fault.drop_after_s if fault else None))
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
                return _found(discovery.group_document(registry, group))
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


def _fail(fault: Fault) -> None:
    if fault.lost:
        raise ConnectionDroppedError
    if fault.error is not None:
        raise fault.error


def _quoted(text: str) -> str:
    """Text as it may stand in a Warning header."""
    plain = "".join(character if " " <= character <= "~" else "?" for character in text[:256])
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def _bytes(body: bytes, code: int = 200, headers: list[tuple[str, str]] | None = None) -> web.Response:
    response = web.Response(body=body, status=code, content_type=_JSON)
    for name, value in headers or ():
        response.headers.add(name, value)
    return response


def _json(value: Any, code: int = 200, *, content_type: str = _JSON) -> web.Response:
    return web.Response(body=encode(value), status=code, headers={"Content-Type": content_type})


def _found(document: Any) -> web.Response:
    if document is None:
        raise unknown_resource()
    return _json(document)


def _failure(error: StatusError) -> web.Response:
    response = _json(error.to_json(), error.code)
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response
