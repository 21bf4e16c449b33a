"""Samples NVML in a process of its own, with a deadline. One that cannot be ended is counted, not waited for."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from muster.agent.gpu.sample import GpuSample, Sample
from muster.clock import Clock

PROGRAM = Path(__file__).with_name("nvml_sampler.py")
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
MAX_STUCK = 2
"""Processes that hang in the kernel; with so many of them no further one is started."""
END_S = 1.0
"""A process that was killed is gone within this time, or it hangs in the kernel."""
LIBRARY = "libnvidia-ml.so.1"
FOLDERS = (
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "run/nvidia/driver/usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "home/kubernetes/bin/nvidia/lib64",
    "opt/nvidia/lib64",
)
"""Where the library lies on a node whose file system is mounted elsewhere: driver container, distributions, GKE."""
_CHUNK = 64 * 1024
_ANNOUNCED = 80


class _End(msgspec.Struct, frozen=True, kw_only=True):
    complete: bool = False
    failure: str = ""
    absent: bool = False


class NvmlSampler:
    """Asks NVML of this machine, one process for each sample."""

    def __init__(
        self,
        clock: Clock,
        *,
        root: Path = Path("/"),
        library: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`library` is taken instead of the system's own or that of `root`; `environment` is that of the process."""
        self._clock = clock
        self._libraries = [library] if library else [LIBRARY, *(str(root / f / LIBRARY) for f in FOLDERS)]
        self._environment = environment
        self._stuck: list[subprocess.Popen[bytes]] = []
        self._running: subprocess.Popen[bytes] | None = None
        self.last_call = ""

    async def sample(self, deadline_s: float, *, deep: bool) -> Sample:
        """One sample, after at most `deadline_s` and a moment. `deep`: with what takes long (the InfoROM)."""
        self._stuck = [process for process in self._stuck if process.poll() is None]
        if len(self._stuck) >= MAX_STUCK:
            failure = f"NVML hangs in {self.last_call}, and no further process is started"
            return Sample(failure=failure, hung=True, stuck=len(self._stuck))
        announced = os.memfd_create("nvml-call")
        try:
            process = self._start(announced, deep)
            try:
                output, ended = await self._read(process, deadline_s)
            finally:
                await self._end(process)
            self.last_call = os.pread(announced, _ANNOUNCED, 0).decode("ascii", "replace").strip("\0 ")
        finally:
            os.close(announced)
        if ended:
            return read_output(output, f"the process that asks NVML ended in {self.last_call}")
        sample = read_output(output, f"NVML did not answer within {deadline_s:g} s in {self.last_call}")
        return msgspec.structs.replace(sample, hung=not sample.complete, stuck=len(self._stuck))

    def _start(self, announced: int, deep: bool) -> subprocess.Popen[bytes]:
        self._running = subprocess.Popen(
            # -I and -S: nothing of the environment or the folder is imported, and the start is quick.
            [sys.executable, "-I", "-S", str(PROGRAM), "deep" if deep else "quick", *self._libraries],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=announced,
            env=None if self._environment is None else dict(self._environment),
            start_new_session=True,
        )
        return self._running

    async def _read(self, process: subprocess.Popen[bytes], deadline_s: float) -> tuple[bytes, bool]:
        """What the process wrote, and whether it came to its end in time."""
        assert process.stdout is not None  # noqa: S101 - it was asked for
        loop, file = asyncio.get_running_loop(), process.stdout.fileno()
        os.set_blocking(file, False)
        ended, output = asyncio.Event(), bytearray()

        def readable() -> None:
            try:
                chunk = os.read(file, _CHUNK)
            except BlockingIOError:
                return
            output.extend(chunk)
            if not chunk or len(output) > MAX_OUTPUT_BYTES:
                loop.remove_reader(file)
                ended.set()

        loop.add_reader(file, readable)
        end = asyncio.create_task(ended.wait())
        late = asyncio.create_task(self._clock.sleep(deadline_s))
        try:
            await asyncio.wait((end, late), return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(file)
            end.cancel()
            late.cancel()
        return bytes(output[:MAX_OUTPUT_BYTES]), ended.is_set()

    async def _end(self, process: subprocess.Popen[bytes]) -> None:
        """The process is gone after this, or one more hangs in the kernel."""
        self._running = None
        assert process.stdout is not None  # noqa: S101 - it was asked for
        process.stdout.close()
        if process.poll() is None:
            process.kill()
        for _ in range(20):
            if process.poll() is not None:
                return
            await self._clock.sleep(END_S / 20)
        self._stuck.append(process)

    async def close(self) -> None:
        """End what still runs."""
        for process in (*self._stuck, *((self._running,) if self._running is not None else ())):
            if process.poll() is None:
                process.kill()


def read_output(output: bytes, cut: str) -> Sample:
    """What the process wrote. `cut` says why it wrote no more, if it did not come to its end."""
    gpus: list[GpuSample] = []
    for line in output.splitlines():
        try:
            if line.startswith(b'{"index"'):
                gpus.append(msgspec.json.decode(line, type=GpuSample))
                continue
            end = msgspec.json.decode(line, type=_End)
        except msgspec.MsgspecError:
            break  # cut off in the middle of a line
        return Sample(gpus=tuple(gpus), complete=end.complete, failure=end.failure, absent=end.absent)
    return Sample(gpus=tuple(gpus), failure=cut)
