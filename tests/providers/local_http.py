"""A local HTTP or HTTPS server for stand-ins, on the loop of the test; requests go wrong when told to."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from muster.sim.certificates import issue


class LocalServer:
    """Hands each request to `answer`. Of the next requests `left` that `counts` go wrong as `how` says.

    `transient`: 503 before anything is done; `lost`: done, and then the connection breaks; `permanent`: 403.
    """

    def __init__(
        self,
        answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
        counts: Callable[[web.Request], bool] = lambda request: True,
        tls_folder: Path | None = None,
    ) -> None:
        self._answer = answer
        self._counts = counts
        self._folder = tls_folder
        self.left = 0
        self.how = ""
        self.requests: list[tuple[str, str]] = []
        self.url = ""
        self.ca_file = ""

    async def start(self) -> None:
        app = web.Application(client_max_size=2**22)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        context = None
        if self._folder is not None:
            context = self._tls(self._folder)
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{port}"

    def _tls(self, folder: Path) -> ssl.SSLContext:
        made = issue("localhost")
        (folder / "server.crt").write_text(made.certificate_pem)
        (folder / "server.key").write_text(made.key_pem)
        (folder / "ca.crt").write_text(made.ca_pem)
        self.ca_file = str(folder / "ca.crt")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        return context

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        due = self.left > 0 and self._counts(request)
        if due:
            self.left -= 1
        if due and self.how == "transient":
            return web.Response(status=503, headers={"Retry-After": "1"}, text="busy")
        if due and self.how == "permanent":
            return web.Response(status=403, text="not allowed")
        answer = await self._answer(request)
        if due and self.how == "lost":
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def close(self) -> None:
        await self._runner.cleanup()
