"""Runs a program for a bounded time with bounded output, in a process group of its own that ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

_CHUNK_BYTES = 64 * 1024
_AFTER_KILL_S = 2.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Finished:
    """How a program ended. `code` is negative for a signal, None when it was given up at its deadline."""

    code: int | None
    output: bytes
    """The first bytes of its standard output."""
    truncated: bool


async def run_child(
    command: Sequence[str], *, timeout_s: float, max_bytes: int, environment: Mapping[str, str] | None = None
) -> Finished:
    """Run `command` without a shell, with nothing to read. Raises OSError when it cannot be started.

    Output beyond `max_bytes` is read and thrown away, so that no program waits for a reader. At the deadline, and
    when whoever waits gives up, the whole group is killed; so are children that it left behind.
    """
    # A pipe of our own: asyncio's wait for a process otherwise lasts until the last child has closed its output.
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=asyncio.subprocess.DEVNULL,
                env={"PATH": PATH, "LANG": "C.UTF-8"} if environment is None else dict(environment),
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(write_end)
        output = _Output(max_bytes)
        reading = asyncio.create_task(output.follow(pipe))
        finished = False
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
            finished = True
        except TimeoutError:
            pass
        finally:
            # A child that the program left behind may hold its output open.
            _kill_group(process.pid)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reading, _AFTER_KILL_S)
            if not finished:
                with contextlib.suppress(TimeoutError):
                    # One that hangs in the kernel cannot be ended and is not waited for.
                    await asyncio.wait_for(process.wait(), _AFTER_KILL_S)
    return Finished(process.returncode if finished else None, bytes(output.kept), output.total > max_bytes)


class _Output:
    """The beginning of what a program writes, and how much it was."""

    def __init__(self, max_bytes: int) -> None:
        self.kept = bytearray()
        self.total = 0
        self._max_bytes = max_bytes

    async def follow(self, pipe: IO[bytes]) -> None:
        """Read to the end."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                self.total += len(chunk)
                self.kept.extend(chunk[: self._max_bytes - len(self.kept)])
        finally:
            transport.close()


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
