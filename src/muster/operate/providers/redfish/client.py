"""Requests to one BMC: login, reading, ordering. Nothing is kept between two uses."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from muster.errors import MusterError
from muster.operate.providers.config import RedfishSettings
from muster.operate.providers.http import Answer, HttpClient, refuse, same_origin
from muster.operate.providers.provider import PermanentProviderError
from muster.operate.providers.redfish.schema import (
    System,
    allowed_in,
    choose,
    link,
    members,
    system_of,
    words,
)
from muster.operate.providers.secret_files import read_secret

ROOT = "/redfish/v1/"


class Bmc:
    """One BMC while it is talked to. Get it from `connected`."""

    def __init__(self, http: HttpClient, base: str, headers: Mapping[str, str], root: Mapping[str, Any]) -> None:
        self._http = http
        self.base = base
        self._headers = headers
        self._root = root
        self.host = urlsplit(base).hostname or base

    async def get(self, path: str) -> Answer:
        """The answer to a GET, whatever its status."""
        return await self._http.send("GET", same_origin(self.base, path), headers=self._headers)

    async def read(self, path: str) -> tuple[dict[str, Any], str]:
        """A resource and its ETag. Raises the error that fits the status."""
        answer = await self.get(path)
        _refuse(answer, self.host)
        return answer.json(), answer.headers.get("etag", "")

    async def system(self, wanted: str) -> System:
        """The ComputerSystem that is meant, with the reset types that it allows."""
        systems = link(self._root, "Systems")
        if not systems:
            raise PermanentProviderError(f"{self.host} lists no Systems in its service root.")
        collection, _ = await self.read(systems)
        path = choose(members(collection), wanted, self.host)
        value, etag = await self.read(path)
        found = system_of(value, path, etag, self.host)
        if not found.allowed and found.action_info:
            info, _ = await self.read(found.action_info)
            found = System(**{**_fields(found), "allowed": allowed_in(info)})
        return found

    async def reset(self, system: System, reset_type: str) -> Answer:
        """Order a reset. A BMC that wants If-Match (412, 428) gets the present ETag and is asked once more."""
        url = same_origin(self.base, system.reset_path)
        body = msgspec.json.encode({"ResetType": reset_type})
        headers = {**self._headers, "Content-Type": "application/json"}
        answer = await self._http.send("POST", url, headers=headers, body=body)
        if answer.status in (412, 428):
            value, etag = await self.read(system.path)
            fresh = system_of(value, system.path, etag, self.host).etag
            if fresh:
                answer = await self._http.send("POST", url, headers={**headers, "If-Match": fresh}, body=body)
        _refuse(answer, self.host)
        return answer


@asynccontextmanager
async def connected(http: HttpClient, base: str, settings: RedfishSettings) -> AsyncIterator[Bmc]:
    """Log in, hand out the BMC, log out. Raises provider errors."""
    host = urlsplit(base).hostname or base
    user = read_secret(settings.username_file, "user name of the BMC")
    password = read_secret(settings.password_file, "password of the BMC")
    answer = await http.send("GET", same_origin(base, ROOT), headers={"Accept": "application/json"})
    _refuse(answer, host)
    root = answer.json()
    headers = {"Accept": "application/json", "OData-Version": "4.0"}
    session = ""
    sessions = link(root, "Links", "Sessions") if settings.sessions else ""
    if sessions:
        body = msgspec.json.encode({"UserName": user, "Password": password})
        url = same_origin(base, sessions)
        made = await http.send("POST", url, headers={**headers, "Content-Type": "application/json"}, body=body)
        if made.status not in (404, 405, 501):
            # 400 is how some BMCs refuse a login. It is not tried again: accounts are locked after a few.
            _refuse(made, f"The login at {host}")
            headers["X-Auth-Token"] = made.headers.get("x-auth-token", "")
            session = made.headers.get("location", "")
    if not headers.get("X-Auth-Token"):
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    try:
        yield Bmc(http, base, headers, root)
    finally:
        if session:
            try:
                await http.send("DELETE", same_origin(base, session), headers=headers)
            except MusterError:
                pass  # a session that stays behind ends by itself


def _refuse(answer: Answer, who: str) -> None:
    said = ""
    if answer.status >= 400:
        try:
            said = words(answer.json())
        except MusterError:
            said = ""
    refuse(answer, who, said)


def _fields(system: System) -> dict[str, Any]:
    return {name: getattr(system, name) for name in System.__dataclass_fields__}
