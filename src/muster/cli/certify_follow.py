"""Following a certification to its end: a bar and live verdicts on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from muster.certify.report.live import SoFar, news, progress_line, so_far
from muster.errors import BadInputError, ExitCode
from muster.kube.api import ConnectionLostError, NotFoundError, ServerError, TooManyRequestsError
from muster.plain_text import plain, printable
from muster.resources.certification import Certification, CertificationPart, Phase

if TYPE_CHECKING:
    from muster.clock import Clock
    from muster.kube.api import KubeApi

EVERY_S = 2.0
AWAY_LIMIT_S = 300.0
"""An API server that does not answer for so long is given up."""
NARROW = 80
"""Columns of a terminal that has no room for a bar beside the numbers."""
ENDED = (Phase.SUCCEEDED, Phase.FAILED, Phase.ABORTED)


class Follower:
    """Watches one certification by reading it again and again; an outage is told once and waited out."""

    def __init__(self, api: KubeApi, clock: Clock, out: TextIO, *, every_s: float = EVERY_S) -> None:
        self._api = api
        self._clock = clock
        self._out = out
        self._every_s = every_s
        self._live = out.isatty()
        self._parts: Mapping[int, CertificationPart] = {}
        self._known = SoFar()
        self._seen_runs = -1
        self._blocked = ""
        self._last_line = ""
        self._expected: int | None = None

    async def follow(self, certification: Certification, limit_s: float | None) -> int:
        """Until it ended, then its verdict. Raises UnreachableError when the server stays away."""
        begun = self._clock.now()
        heard = begun
        name, uid = certification.metadata.name, certification.metadata.uid
        away = False
        while True:
            now = self._clock.now()
            try:
                certification = await self._read(name)
                heard, away = now, False
            except (ConnectionLostError, ServerError, TooManyRequestsError) as error:
                if (now - heard).total_seconds() > AWAY_LIMIT_S:
                    raise
                if not away:
                    why = plain(str(error), 300)
                    self._say(f"The API server does not answer ({why}); the certification goes on. Waiting.")
                away = True
            except BadInputError as error:
                if not isinstance(error.__cause__, NotFoundError):
                    raise
                self._say(f"{name} was deleted by somebody; it has no verdict. What it started is being removed.")
                return ExitCode.NOT_SATISFIED
            if certification.metadata.uid != uid:
                self._say(f"{name} was deleted and created again by somebody else; this one has no verdict.")
                return ExitCode.NOT_SATISFIED
            if not away:
                await self._show(certification)
            if certification.status.phase in ENDED:
                return await self._verdict(certification)
            if limit_s is not None and (now - begun).total_seconds() >= limit_s:
                self._say(f"No verdict within {limit_s:g} s; it goes on. Look again: muster certify status {name}")
                return ExitCode.TIMEOUT
            await self._clock.sleep(self._every_s)

    async def _read(self, name: str) -> Certification:
        from muster.cli.certify_cluster import read_certification

        return await read_certification(self._api, name)

    async def _show(self, certification: Certification) -> None:
        status = certification.status
        if status.phase is Phase.RUNNING and status.cost.runs != self._seen_runs:
            self._seen_runs = status.cost.runs
            now = await self._so_far(certification)
            for line in news(self._known, now, "", ""):
                self._say(plain(line, 2000))
            self._known = now
        for line in news(SoFar(), SoFar(), self._blocked, status.blocked):
            self._say(plain(line, 2000))
        self._blocked = status.blocked
        narrow = self._live and shutil.get_terminal_size((100, 24)).columns < NARROW
        self._progress(progress_line(certification, self._expected, narrow=narrow))

    async def _so_far(self, certification: Certification) -> SoFar:
        from muster.certify.report.build import collect, expected_runs
        from muster.cli.certify_cluster import read_parts

        self._parts = await read_parts(self._api, certification, self._parts)
        got = collect(certification, list(self._parts.values()))
        if self._expected is None:
            self._expected = expected_runs(got.plan)
        return so_far(got.plan, got.runs)

    async def _verdict(self, certification: Certification) -> int:
        from muster.certify.report.build import build
        from muster.certify.report.text import text
        from muster.cli.certify_cluster import read_parts

        parts = await read_parts(self._api, certification, self._parts)
        report = build(certification, list(parts.values()))
        self._say(text(report).rstrip())
        return ExitCode.OK if report.passed else ExitCode.NOT_SATISFIED

    def _say(self, text: str) -> None:
        """Whole lines; the bar of a terminal is taken away before."""
        if self._live:
            self._out.write("\r\x1b[K")
        for line in text.split("\n"):
            self._out.write(printable(line)[:4000] + "\n")
        self._out.flush()

    def _progress(self, line: str) -> None:
        if self._live:
            width = shutil.get_terminal_size((100, 24)).columns - 1
            self._out.write("\r\x1b[K" + plain(line, max(20, width)))
        elif line != self._last_line:
            self._out.write(plain(line, 500) + "\n")
        self._out.flush()
        self._last_line = line
