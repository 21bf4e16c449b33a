"""A stand-in for BMCs: the part of the Redfish schema that a reset needs, in the manners of several makers."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from muster.operate.providers.config import RedfishSettings
from muster.operate.providers.redfish.provider import RedfishProvider
from muster.resources.repair import Rung
from tests.providers.bed import Bed
from tests.providers.contract import Bench
from tests.providers.local_http import LocalServer

USER, PASSWORD = "muster", "s3cret words"
BOOT_S = 60.0


@dataclass(frozen=True)
class Dialect:
    name: str
    system: str
    allowed: tuple[str, ...]
    inline: bool = True
    """The reset types stand in the system itself; False: in a ResetActionInfo."""
    sessions: bool = True
    accepted: int = 204
    """What an order is answered with; 202 comes with a task."""
    if_match: bool = False
    absolute_location: bool = False


IDRAC = Dialect(
    "idrac-like",
    "System.Embedded.1",
    ("On", "ForceOff", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PushPowerButton", "Nmi", "PowerCycle"),
    accepted=202,
    absolute_location=True,
)
SUPERMICRO = Dialect(
    "supermicro-like",
    "1",
    ("On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn"),
    inline=False,
    accepted=200,
    if_match=True,
)
OPENBMC = Dialect(
    "openbmc-like",
    "system",
    ("On", "ForceOff", "ForceOn", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PowerCycle", "Nmi"),
    inline=False,
    sessions=False,
)


class Bmc(Bench):
    """The BMC of the node and the machine behind it."""

    dialect = IDRAC
    rung = Rung.POWER_CYCLE

    async def start(self) -> None:
        self._made = tempfile.TemporaryDirectory()
        self.folder = Path(self._made.name)
        (self.folder / "user").write_text(USER + "\n")
        (self.folder / "password").write_text(PASSWORD + "\n")
        self.power = "On"
        self.boots = 1
        self.orders: list[str] = []
        self.tokens: set[str] = set()
        self.logins = 0
        self.tasks: dict[str, str] = {}
        self.machines: list[asyncio.Task[None]] = []
        self.server = LocalServer(self.answer, self._counts, self.folder)
        await self.server.start()

    def _counts(self, request: web.Request) -> bool:
        # A lost answer is one to an order; other errors may come at any time.
        return self.server.how != "lost" or request.path.endswith("ComputerSystem.Reset")

    async def close(self) -> None:
        for task in self.machines:
            task.cancel()
        await self.server.close()
        self._made.cleanup()

    def settings(self, **more: Any) -> RedfishSettings:
        return RedfishSettings(
            **{
                "name": "p",
                "address": self.server.url,
                "username_file": str(self.folder / "user"),
                "password_file": str(self.folder / "password"),
                "ca_file": self.server.ca_file,
                **more,
            }
        )

    def provider(self) -> RedfishProvider:
        return RedfishProvider(self.settings(), self.bed.clock)

    def break_next(self, times: int, how: str) -> None:
        self.server.left, self.server.how = times, how

    # The machine

    async def boot(self) -> None:
        while True:
            await self.bed.clock.sleep(BOOT_S)
            if self.ok:
                self.boots += 1
                await self.bed.boot(f"boot-{self.boots}")
                self.end_tasks("Completed")
                return
            if self.ok is False:
                self.end_tasks("Exception")
                return

    def end_tasks(self, state: str) -> None:
        for name in self.tasks:
            self.tasks[name] = state

    def reset(self, kind: str) -> None:
        self.orders.append(kind)
        if kind == "ForceOff":
            self.works.append(kind)
            self.power = "Off"
            return
        if kind != "On":
            self.works.append(kind)
        elif self.power == "On":
            return
        self.power = "On"
        self.machines.append(asyncio.ensure_future(self.boot()))

    # Redfish

    async def answer(self, request: web.Request) -> web.Response:
        path, d = request.path.rstrip("/"), self.dialect
        system = f"/redfish/v1/Systems/{d.system}"
        if path == "/redfish/v1":
            links = {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}} if d.sessions else {}
            return web.json_response({"Systems": {"@odata.id": "/redfish/v1/Systems"}, "Links": links})
        if path == "/redfish/v1/SessionService/Sessions" and request.method == "POST":
            return await self.login(request)
        if not self.known(request):
            error = {"error": {"code": "Base.1.8.AccessDenied", "message": "While attempting to log in, denied."}}
            return web.json_response(error, status=401)
        if request.method == "DELETE":
            self.tokens.discard(request.headers["X-Auth-Token"])
            return web.Response(status=204)
        if path == "/redfish/v1/Systems":
            return web.json_response({"Members": [{"@odata.id": system}], "Members@odata.count": 1})
        if path == system:
            return self.system(system)
        if path == f"{system}/ResetActionInfo":
            parameter = {"Name": "ResetType", "Required": True, "AllowableValues": list(d.allowed)}
            return web.json_response({"Parameters": [parameter]})
        if path == f"{system}/Actions/ComputerSystem.Reset" and request.method == "POST":
            return self.order(request, json.loads(await request.read())["ResetType"])
        if path.startswith("/redfish/v1/TaskService/TaskMonitors/"):
            state = self.tasks.get(path, "")
            if not state:
                return web.Response(status=404)
            if state == "Running":
                return web.json_response({"TaskState": "Running"}, status=202)
            messages = [{"Message": "The power supply did not come up."}] if state == "Exception" else []
            return web.json_response({"TaskState": state, "TaskStatus": "OK", "Messages": messages})
        return web.Response(status=404)

    async def login(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.logins += 1
        if (body["UserName"], body["Password"]) != (USER, PASSWORD):
            return web.json_response({"error": {"message": "wrong user or password"}}, status=401)
        token = f"token-{self.logins}"
        self.tokens.add(token)
        location = f"/redfish/v1/SessionService/Sessions/{self.logins}"
        return web.Response(status=201, headers={"X-Auth-Token": token, "Location": location})

    def known(self, request: web.Request) -> bool:
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.dialect.sessions:
            return request.headers.get("X-Auth-Token", "") in self.tokens
        return request.headers.get("Authorization") == basic

    def system(self, path: str) -> web.Response:
        action: dict[str, Any] = {"target": f"{path}/Actions/ComputerSystem.Reset"}
        if self.dialect.inline:
            action["ResetType@Redfish.AllowableValues"] = list(self.dialect.allowed)
        else:
            action["@Redfish.ActionInfo"] = f"{path}/ResetActionInfo"
        body = {"@odata.id": path, "PowerState": self.power, "Actions": {"#ComputerSystem.Reset": action}}
        return web.json_response(body, headers={"ETag": f'"{len(self.orders)}"'})

    def order(self, request: web.Request, kind: str) -> web.Response:
        if kind not in self.dialect.allowed:
            return web.json_response({"error": {"message": f"{kind} is not in the list"}}, status=400)
        if self.dialect.if_match and request.headers.get("If-Match") != f'"{len(self.orders)}"':
            return web.Response(status=428)
        self.reset(kind)
        if self.dialect.accepted != 202:
            return web.Response(status=self.dialect.accepted)
        monitor = f"/redfish/v1/TaskService/TaskMonitors/{len(self.orders)}"
        self.tasks[monitor] = "Running"
        location = f"{self.server.url}{monitor}" if self.dialect.absolute_location else monitor
        return web.json_response({"TaskState": "Running"}, status=202, headers={"Location": location})


class IdracLike(Bmc):
    dialect = IDRAC


class SupermicroLike(Bmc):
    dialect = SUPERMICRO


class OpenBmcLike(Bmc):
    dialect = OPENBMC
    rung = Rung.REBOOT


async def started(on: Bed, kind: type[Bmc]) -> Bmc:
    made = kind(on)
    await made.start()
    return made
