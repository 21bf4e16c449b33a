"""Program `storage`: sequential and random reads and writes of a file in a folder, and whether what is read is what
was written.

Where `fio` is installed its figures are taken; what is written is read back and compared by this program either way.
Past the page cache (O_DIRECT) where the file system allows. The file is removed at the end, whatever happens.
Parameters: `path` (folder), `size`, `block`, `random_block`, `seconds` (of each random part), `tool` (auto, fio,
own)."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from muster.workloads import fio
from muster.workloads.context import RankContext, first_line
from muster.workloads.rank import RankFailure, RankResult

PARAMS = ["path", "size", "block", "random_block", "seconds", "tool"]
ALIGN_BYTES = 4096
CHECKED_BYTES = 256 << 20
"""Beside fio this program writes and compares so much itself."""


@dataclass
class _Figures:
    """Bytes per second and operations per second."""

    write: float = 0.0
    read: float = 0.0
    random_write_iops: float = 0.0
    random_read_iops: float = 0.0
    random_read_p99_s: float = 0.0


def run(context: RankContext) -> RankResult:
    """The program. `value` is the slower one of sequential reading and writing, in GB/s."""
    params = context.params
    params.refuse_others(*PARAMS)
    folder = Path(params.text("path", os.environ.get("TMPDIR", "/tmp")))  # noqa: S108 - a file of a new name in it
    size = params.size("size", 256 << 20, least=1 << 20, most=1 << 44)
    block = params.size("block", 4 << 20, least=ALIGN_BYTES, most=1 << 30) // ALIGN_BYTES * ALIGN_BYTES
    random_block = (
        params.size("random_block", ALIGN_BYTES, least=ALIGN_BYTES, most=block) // ALIGN_BYTES * ALIGN_BYTES
    )
    seconds = params.number("seconds", 2.0, least=0.01, most=3600.0)
    tool = params.text("tool", "auto", among=("auto", "fio", "own"))
    program = shutil.which("fio") if tool != "own" else None
    if tool == "fio" and program is None:
        raise RankFailure("harness", "fio is not installed here: leave `tool` at auto, or take an image with fio")
    try:
        _make_room(folder, size)
        return _measure(context, folder, size, block, random_block, seconds, program)
    except OSError as error:
        # A full or read-only volume is a mistake in the set-up; an input/output error is the storage itself.
        reason = "hardware" if error.errno == errno.EIO else "harness"
        raise RankFailure(reason, f"storage at {folder}: {first_line(error)}") from error


def _measure(
    context: RankContext, folder: Path, size: int, block: int, random_block: int, seconds: float, program: str | None
) -> RankResult:
    count = max(1, (size if program is None else min(size, CHECKED_BYTES)) // block)
    with _file(folder, context.rank) as path:
        disk = _Disk(path, block, count)
        context.progress.enter("write")
        context.inject.before_step(0)
        figures = _Figures(write=disk.write_all())
        if context.inject.corrupt:
            disk.spoil()
        context.progress.enter("read")
        figures.read, wrong = disk.read_all()
        context.progress.enter("random")
        figures.random_read_iops, figures.random_read_p99_s = disk.random(random_block, seconds, writes=False)
        figures.random_write_iops, _ = disk.random(random_block, seconds, writes=True)
        wrong += disk.read_all()[1]
        direct = disk.direct
    versions = {"storage": "own program"}
    if program is not None:
        context.progress.enter("fio")
        versions["storage"], figures = _by_fio(
            program, folder, size, block, random_block, seconds, context.spec.timeout_s
        )
    return RankResult(
        ok=wrong == 0,
        value=min(figures.write, figures.read) / 1e9,
        unit="GB/s",
        reason="hardware" if wrong else "",
        message=f"{wrong} blocks of {block} bytes in {folder} read back wrong" if wrong else "",
        versions=versions,
        facts={
            "sequential_write_gb_per_s": figures.write / 1e9,
            "sequential_read_gb_per_s": figures.read / 1e9,
            "random_write_iops": figures.random_write_iops,
            "random_read_iops": figures.random_read_iops,
            "random_read_p99_us": figures.random_read_p99_s * 1e6,
            "past_page_cache": float(direct),
            "wrong_blocks": float(wrong),
        },
    )


def _by_fio(
    program: str, folder: Path, size: int, block: int, random_block: int, seconds: float, timeout_s: float
) -> tuple[str, _Figures]:
    found = fio.measure(program, folder, size, block, random_block, seconds, timeout_s)
    return found.version, _Figures(
        write=found.write_bytes_per_s,
        read=found.read_bytes_per_s,
        random_write_iops=found.random_write_iops,
        random_read_iops=found.random_read_iops,
        random_read_p99_s=found.random_read_p99_s,
    )


def _make_room(folder: Path, size: int) -> None:
    if not folder.is_dir():
        raise RankFailure("harness", f"{folder} is no folder: give `path` a mounted volume")
    free = shutil.disk_usage(folder).free
    if free < size * 2:
        raise RankFailure(
            "harness", f"{folder} has {free} bytes free, and {size * 2} are needed: make room, or set `size`"
        )


@contextmanager
def _file(folder: Path, rank: int) -> Iterator[Path]:
    path = folder / f".muster-storage-{os.uname().nodename}-{os.getpid()}-{rank}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


class _Disk:
    """One file of numbered blocks."""

    def __init__(self, path: Path, block: int, count: int) -> None:
        self.path, self.block, self.count = path, block, count
        # Memory of its own pages: O_DIRECT wants aligned buffers.
        self.buffer = mmap.mmap(-1, block)
        self.filling = os.urandom(block)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.direct = True
        try:
            self.file = os.open(path, flags | os.O_DIRECT, 0o600)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            path.unlink(missing_ok=True)
            self.direct = False
            self.file = os.open(path, flags, 0o600)

    def __del__(self) -> None:
        if hasattr(self, "file"):
            os.close(self.file)

    def write_all(self) -> float:
        """Bytes per second, until the data is on the device."""
        spent = 0.0
        for number in range(self.count):
            self._prepare(number)
            started = time.perf_counter()
            self._all(os.pwrite(self.file, self.buffer, number * self.block))
            spent += time.perf_counter() - started
        started = time.perf_counter()
        os.fsync(self.file)
        return self.count * self.block / (spent + time.perf_counter() - started)

    def read_all(self) -> tuple[float, int]:
        """Bytes per second, and blocks that are not what was written."""
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        spent, wrong = 0.0, 0
        for number in range(self.count):
            started = time.perf_counter()
            self._all(os.preadv(self.file, [self.buffer], number * self.block))
            spent += time.perf_counter() - started
            wrong += self.buffer[:] != self._content(number)
        return self.count * self.block / spent, wrong

    def random(self, size: int, seconds: float, *, writes: bool) -> tuple[float, float]:
        """Operations per second one after the other, and the 99th percentile of their times in seconds. What is
        written is what stands there already, so that the contents stay known."""
        small = mmap.mmap(-1, size)
        view = memoryview(small)
        places = self.count * (self.block // size)
        times: list[float] = []
        state = 12345
        ends = time.monotonic() + seconds
        while len(times) < 16 or time.monotonic() < ends:
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            number, part = divmod((state >> 33) % places, self.block // size)
            if writes:
                view[:] = self._content(number)[part * size : (part + 1) * size]
            started = time.perf_counter()
            at = number * self.block + part * size
            done = os.pwrite(self.file, view, at) if writes else os.preadv(self.file, [view], at)
            times.append(time.perf_counter() - started)
            if done != size:
                raise OSError(errno.EIO, f"{done} bytes of {size}")
        if writes:
            os.fsync(self.file)
        return 1.0 / statistics.fmean(times), sorted(times)[int(len(times) * 0.99)]

    def spoil(self) -> None:
        """A fault for tests: one byte of the middle block is changed behind the program's back."""
        with self.path.open("r+b") as file:
            file.seek(self.count // 2 * self.block)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))

    def _content(self, number: int) -> bytes:
        return number.to_bytes(16, "little") + self.filling[16:]

    def _prepare(self, number: int) -> None:
        if number == 0:
            self.buffer[:] = self.filling
        self.buffer[:16] = number.to_bytes(16, "little")

    def _all(self, done: int) -> None:
        if done != self.block:
            raise OSError(errno.EIO, f"{done} bytes of {self.block}")
