"""One run on one node: starts its ranks, waits for them with a deadline, and leaves one report.

`python -m muster.workloads exec --spec FILE --report FILE`. The worker runs it in a child of its own, which may be
killed at any moment. Ranks are forked from it: a worker has PyTorch imported already, and a fork keeps that.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster.workloads import rank_process
from muster.workloads.programs import ONE_RANK_PER_NODE
from muster.workloads.progress import read_progress
from muster.workloads.rank import RankResult
from muster.workloads.run_spec import RunSpec, SpecError, host_and_port
from muster.workloads.worker_merge import OWN_FAILURE, RankEnd, merge
from muster.workloads.worker_processes import die_with_parent, read_regular

TAIL_BYTES = 4000
"""Last output of each rank that is kept."""
GRACE_S = 20.0
"""Once a rank has died, its peers on the node get this long to notice and to say so: closed connections show at once,
and the roll call of the survivors takes five seconds."""
RESULT_LIMIT_BYTES = 1024 * 1024


@dataclass
class _Rank:
    """A rank process. `output` is the end of its pipe that is read here."""

    local_rank: int
    pid: int
    output: int
    result_path: Path
    progress_path: Path
    tail: bytes = b""
    status: int | None = None
    """Wait status as exit code, or minus the signal."""
    killed: bool = False
    ended_at: float = field(default=0.0)


def main(arguments: Sequence[str]) -> int:
    """The verb `exec`. Exit code 0 whenever a report was left."""
    parser = argparse.ArgumentParser(prog="muster.workloads exec", description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help="RunSpec as JSON")
    parser.add_argument("--report", type=Path, required=True, help="where the NodeReport is left")
    options = parser.parse_args(arguments)
    try:
        spec = RunSpec.from_json(options.spec.read_bytes())
    except (OSError, SpecError) as error:
        print(f"The run cannot be read: {error}", file=sys.stderr)
        return 2
    execute(spec, options.report)
    return 0


def execute(spec: RunSpec, report: Path) -> None:
    """Carry out `spec` and leave the NodeReport at `report` (renamed into place)."""
    # Beside the report: whoever takes that away takes the rest of a run that was killed too.
    with tempfile.TemporaryDirectory(prefix="ranks-", dir=report.parent) as folder:
        ends = _ranks(spec, Path(folder))
    text = merge(spec, ends).to_json()
    part = report.with_name(report.name + ".part")
    part.write_text(text)
    part.replace(report)


def ranks_of(spec: RunSpec) -> int:
    """Rank processes on each node: programs about the node as a whole take one."""
    return 1 if spec.program in ONE_RANK_PER_NODE else spec.ranks_per_node


def _ranks(spec: RunSpec, folder: Path) -> list[RankEnd]:
    spec_path = folder / "spec.json"
    spec_path.write_text(spec.to_json())
    sys.stdout.flush()
    sys.stderr.flush()
    meeting = _meeting(spec)
    ranks = [_start(spec, folder, spec_path, local, meeting) for local in range(ranks_of(spec))]
    try:
        _wait(ranks, time.monotonic() + spec.timeout_s)
    finally:
        for rank in ranks:
            _kill(rank)
            os.close(rank.output)
    return [_end(rank) for rank in ranks]


def _meeting(spec: RunSpec) -> tuple[str, int]:
    """Where the ranks meet. On one node alone: on a port that is free now."""
    if spec.rendezvous:
        return host_and_port(spec.rendezvous)
    with socket.create_server(("127.0.0.1", 0)) as server:
        return "127.0.0.1", int(server.getsockname()[1])


def _start(spec: RunSpec, folder: Path, spec_path: Path, local: int, meeting: tuple[str, int]) -> _Rank:
    count = ranks_of(spec)
    reading, writing = os.pipe()
    rank = _Rank(local, 0, reading, folder / f"rank-{local}.json", folder / f"rank-{local}.progress")
    parent = os.getpid()
    rank.pid = os.fork()
    if rank.pid:
        os.close(writing)
        return rank
    code = 1
    try:
        die_with_parent(parent)
        for fd in (1, 2):
            os.dup2(writing, fd)
        os.environ.update(_environment(spec, local, count, meeting))
        paths = ["--spec", str(spec_path), "--result", str(rank.result_path), "--progress", str(rank.progress_path)]
        code = rank_process.main(paths)
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        # A defect of ours, not of the node.
        traceback.print_exc()
        code = OWN_FAILURE
    finally:
        # Never back into the code of the parent, whatever happened.
        os._exit(code)


def _environment(spec: RunSpec, local: int, count: int, meeting: tuple[str, int]) -> dict[str, str]:
    return {
        **spec.env,
        "RANK": str(spec.node_index * count + local),
        "WORLD_SIZE": str(len(spec.nodes) * count),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": meeting[0],
        "MASTER_PORT": str(meeting[1]),
    }


def _wait(ranks: Sequence[_Rank], deadline: float) -> None:
    """Return when all ranks ended, at the deadline, or GRACE_S after one of them died."""
    selector = selectors.DefaultSelector()
    for rank in ranks:
        os.set_blocking(rank.output, False)
        selector.register(rank.output, selectors.EVENT_READ, rank)
    while any(rank.status is None for rank in ranks):
        for rank in ranks:
            _reap(rank)
        died = [r.ended_at for r in ranks if r.status is not None and not r.result_path.exists()]
        limit = min([deadline, *(at + GRACE_S for at in died)])
        left_s = limit - time.monotonic()
        if left_s <= 0:
            break
        ready = selector.select(min(left_s, 0.05)) if selector.get_map() else []
        if not selector.get_map():
            time.sleep(min(left_s, 0.05))
        for key, _ in ready:
            if not _read(key.data):
                selector.unregister(key.fileobj)
    for rank in ranks:
        _read(rank)
    selector.close()


def _read(rank: _Rank) -> bool:
    """Take what the rank wrote; False at the end of its output."""
    try:
        data = os.read(rank.output, 65_536)
    except BlockingIOError:
        return True
    except OSError:
        return False
    rank.tail = (rank.tail + data)[-TAIL_BYTES:]
    return bool(data)


def _reap(rank: _Rank, options: int = os.WNOHANG) -> None:
    if rank.status is None:
        pid, status = os.waitpid(rank.pid, options)
        if pid:
            rank.status = os.waitstatus_to_exitcode(status)
            rank.ended_at = time.monotonic()


def _kill(rank: _Rank) -> None:
    _reap(rank)
    if rank.status is None:
        rank.killed = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(rank.pid, signal.SIGKILL)
        _reap(rank, 0)


def _end(rank: _Rank) -> RankEnd:
    result, wrong = None, ""
    try:
        if rank.result_path.exists():
            text = read_regular(rank.result_path, RESULT_LIMIT_BYTES).decode("utf-8", "replace")
            result = RankResult.from_json(text)
    except (OSError, ValueError, OverflowError) as error:
        wrong = str(error)
    progress = read_progress(rank.progress_path)
    at = progress.get("at")
    return RankEnd(
        local_rank=rank.local_rank,
        result=result,
        exit_code=rank.status or 0,
        overdue=rank.killed,
        progress=progress,
        idle_s=max(0.0, time.time() - at) if isinstance(at, float) else math.inf,
        tail=rank.tail.decode("utf-8", "replace"),
        unreadable=wrong,
    )
