"""What one rank knows of its run, and its way into the process group."""

from __future__ import annotations

import os
import re
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from muster.workloads.inject import Injection
from muster.workloads.params import Params
from muster.workloads.progress import Progress
from muster.workloads.pytorch import load_torch
from muster.workloads.rank import RankFailure
from muster.workloads.run_spec import RunSpec

ROLL_CALL_S = 5.0
"""How long the ranks that notice a failure wait for the others to notice it too. When one leaves the group, its
connections close, and the next ones notice within milliseconds; five seconds suffice for thousands of ranks."""

_SOURCE = re.compile(r"\[/[^\]\s]{1,200}:\d{1,6}\] ?")
"""File and line of a library's own source, which tell an operator nothing."""


class RankContext:
    """One rank of a run. Not shared between threads."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        rank: int,
        world_size: int,
        local_rank: int,
        progress: Progress | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.spec = spec
        self.rank = rank
        self.world_size = world_size
        self.local_rank = local_rank
        self.device = spec.device
        self.params = Params(spec.params)
        self.progress = progress or Progress(None)
        self.inject = Injection.of(spec.inject, node=self.node, local_rank=local_rank)
        self.startup_s = 0.0
        """Seconds that forming the group took."""
        self._environ = os.environ if environ is None else environ
        self._waiting = False
        self._dist: Any = None
        self._store: Any = None

    @property
    def node(self) -> str:
        return self.node_of(self.rank)

    @property
    def gpu(self) -> int | None:
        return self.local_rank if self.device == "cuda" else None

    def node_of(self, rank: int) -> str:
        """Name of the node that `rank` runs on."""
        return self.spec.nodes[rank * len(self.spec.nodes) // self.world_size]

    @property
    def op_timeout_s(self) -> float:
        """The longest time that one operation of the group may take. Below the deadline of the run, so that the ranks
        that wait for a silent one still have the time to say so."""
        usual = max(1.0, min(60.0, self.spec.timeout_s / 2))
        return self.params.number("op_timeout_s", usual, least=0.1)

    def torch_device(self) -> Any:
        torch = load_torch()
        if self.device != "cuda":
            return torch.device("cpu")
        count = torch.cuda.device_count()
        if self.local_rank >= count:
            raise RankFailure("hardware", f"GPU {self.local_rank} is not there: PyTorch sees {count}", (self.node,))
        return torch.device("cuda", self.local_rank)

    def group(self) -> Any:
        """`torch.distributed` with its group formed: nccl on GPUs, gloo on CPUs. Raises `RankFailure`."""
        if self._dist is not None:
            return self._dist
        torch = load_torch()
        dist = torch.distributed
        self.progress.enter("rendezvous", waiting=True)
        started = time.perf_counter()
        device = self.torch_device()
        if self.device == "cuda":
            torch.cuda.set_device(device)
        timeout = timedelta(seconds=self.op_timeout_s)
        try:
            self._store = self._open_store(dist, timedelta(seconds=max(1.0, self.spec.timeout_s / 2)))
            self._prepare_gloo()
            dist.init_process_group(
                "nccl" if self.device == "cuda" else "gloo",
                store=dist.PrefixStore("group", self._store),
                rank=self.rank,
                world_size=self.world_size,
                timeout=timeout,
            )
        except ValueError as error:
            raise RankFailure("harness", f"the process group cannot form: {first_line(error)}") from error
        except (RuntimeError, OSError) as error:
            if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
                # Another program has the port: nobody's fault, and another port will do.
                raise RankFailure("harness", f"the rendezvous port is taken: {first_line(error)}") from error
            raise RankFailure(
                "timeout", f"the process group did not form: {first_line(error)}", self._absent()
            ) from error
        self._dist = dist
        self.startup_s = time.perf_counter() - started
        self.progress.enter("formed")
        return dist

    @contextmanager
    def waiting(self, phase: str, step: int = 0) -> Iterator[None]:
        """Operations of the group stand inside: what they raise becomes the `RankFailure` that says who was lost."""
        self.progress.enter(phase, step=step, waiting=True)
        self._waiting = True
        try:
            yield
        except (RuntimeError, TimeoutError) as error:
            if "OutOfMemory" in type(error).__name__ or "not enough memory" in str(error):
                raise RankFailure("harness", f"out of memory: {first_line(error)}") from error
            raise self.lost(error) from error
        finally:
            self._waiting = False
        self.progress.enter("work", step=step)

    def synchronize(self) -> None:
        """Waits for the GPU; nothing on a CPU. When it takes longer than an operation may: raises `RankFailure`
        (`hang`, this node) in the rank's own work, `TimeoutError` inside `waiting`."""
        if self.device != "cuda":
            return
        torch = load_torch()
        event = torch.cuda.Event()
        event.record()
        deadline = time.monotonic() + self.op_timeout_s
        while not event.query():
            if time.monotonic() > deadline:
                told = f"no progress on the GPU for {self.op_timeout_s:.0f} s"
                if self._waiting:
                    raise TimeoutError(told)
                raise RankFailure("hang", told, (self.node,))

    def lost(self, error: BaseException) -> RankFailure:
        """Who was lost, after an operation of the group ended with `error`.

        Every rank that is still there leaves the group (so that the others notice too), answers a roll call in the
        rendezvous store, and reads who did not. A rank that does not answer is silent: its node is the suspect. When
        all answer, or the store is gone, nobody is.
        """
        timed_out = (
            isinstance(error, TimeoutError) or "timed out" in str(error).lower() or "timeout" in str(error).lower()
        )
        # The frames of the failed call hold the group, and while anybody holds it its connections stay open.
        traceback.clear_frames(error.__traceback__)
        self._leave()
        silent, any_timeout = self._roll_call(timed_out)
        reason = "hang" if any_timeout else "crash"
        told = f"a collective ended with: {first_line(error)}"
        if silent:
            names = tuple(sorted({self.node_of(rank) for rank in silent}))
            listed = ", ".join(f"rank {rank} ({self.node_of(rank)})" for rank in silent[:8])
            return RankFailure(reason, f"no answer from {listed}; {told}", names)
        return RankFailure(reason, told)

    def close(self, *, finished: bool) -> None:
        """Leaves the group; after a program that `finished`, not before all ranks are as far: a connection that is
        closed early takes what the other end has not read yet with it."""
        if self._dist is None:
            return
        if finished and self._dist.is_initialized():
            try:
                self.progress.enter("leave", waiting=True)
                self._dist.all_reduce(load_torch().zeros(1, device=self.torch_device()))
                self.synchronize()
            except (RuntimeError, RankFailure):
                # What this rank measured stands; those that did not come this far report themselves.
                self.progress.enter("left alone")
        self._leave()
        self._dist = None

    def _leave(self) -> None:
        if self._dist is None or not self._dist.is_initialized():
            return
        try:
            if self.device == "cuda":
                self._dist.distributed_c10d._abort_process_group()
            else:
                self._dist.destroy_process_group()
        except (RuntimeError, ValueError, AttributeError):
            return

    def _open_store(self, dist: Any, timeout: timedelta) -> Any:
        host, _, port = self.spec.rendezvous.rpartition(":")
        host = self._environ.get("MASTER_ADDR") or host.strip("[]") or "127.0.0.1"
        number = self._environ.get("MASTER_PORT") or port
        if not number:
            raise RankFailure("harness", "no rendezvous: give host:port of the first node")
        serves = self.rank == 0 and self._environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        return dist.TCPStore(
            host, int(number), self.world_size, is_master=serves, timeout=timeout, wait_for_workers=False
        )

    def _prepare_gloo(self) -> None:
        """Gloo listens on the address of the host name. Where the group meets on loopback, that is the wrong one."""
        host = self._environ.get("MASTER_ADDR") or self.spec.rendezvous.rpartition(":")[0]
        if self.device != "cuda" and (host.startswith("127.") or host in ("localhost", "")):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

    def _absent(self) -> tuple[str, ...]:
        """Who has not come to the rendezvous, where the store can say it."""
        if self._store is None:
            return ()
        silent, _ = self._roll_call(timed_out=True)
        return tuple(sorted({self.node_of(rank) for rank in silent}))

    def _roll_call(self, timed_out: bool) -> tuple[list[int], bool]:
        """Ranks that do not answer, and whether anybody ran into a deadline (rather than a closed connection)."""
        if self._store is None:
            return [], timed_out
        wait_s = min(ROLL_CALL_S, max(1.0, self.spec.timeout_s / 4))
        keys = {rank: f"roll/{rank}" for rank in range(self.world_size)}
        try:
            self._store.set(keys[self.rank], "timeout" if timed_out else "closed")
            deadline = time.monotonic() + wait_s
            missing = sorted(keys)
            while missing and time.monotonic() < deadline:
                missing = [rank for rank in missing if not self._store.check([keys[rank]])]
                if missing:
                    time.sleep(0.1)
            heard = [self._store.get(keys[rank]) for rank in sorted(set(keys) - set(missing))]
            if self.rank == 0:
                self._linger(len(heard), wait_s)
            else:
                self._store.add("left", 1)
        except (RuntimeError, ValueError, OSError):
            # The store went with rank 0, which may only have ended before us: nobody is known to be silent.
            return [], timed_out
        # A majority must be heard: when most are silent, it may be we who are cut off.
        if 2 * len(missing) >= self.world_size and len({self.node_of(rank) for rank in keys}) > 1:
            return [], b"timeout" in heard
        return missing, b"timeout" in heard

    def _linger(self, heard: int, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and self._store.add("left", 0) < heard - 1:
            time.sleep(0.1)


def first_line(error: BaseException) -> str:
    """The first line of an error, bounded."""
    lines = _SOURCE.sub("", str(error)).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
