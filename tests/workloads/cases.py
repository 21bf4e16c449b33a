"""Runs of programs for tests: a rank in this process, or the nodes of a run as processes with PyTorch."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from muster.workloads.rank import RankResult
from muster.workloads.rank_process import run_rank
from muster.workloads.report import NodeReport
from muster.workloads.run_spec import RunSpec

SOURCE = Path(__file__).parents[2] / "src"


def spec_of(program: str, params: dict[str, Any], **others: Any) -> RunSpec:
    return RunSpec(run="r", test=program, program=program, params=params, **({"nodes": ("a",)} | others))


def alone(program: str, params: dict[str, Any], **others: Any) -> RankResult:
    """The only rank of a run, in this process."""
    return run_rank(spec_of(program, params, **others), rank=0, world_size=1, local_rank=0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


CREW = """
import sys
from pathlib import Path
import torch
from muster.workloads.exec import execute
from muster.workloads.run_spec import RunSpec
for line in sys.stdin:
    spec, report = line.split()
    execute(RunSpec.from_json(Path(spec).read_bytes()), Path(report))
    print("done", flush=True)
"""


class Crew:
    """Nodes as processes that import PyTorch once and carry out run after run, each in ranks forked for it."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._python, self._folder = python, folder
        self._members: list[subprocess.Popen[str]] = []
        self._runs = 0

    def run(
        self,
        program: str,
        params: dict[str, Any],
        *,
        nodes: int,
        inject: dict[str, Any] | None = None,
        timeout_s: float = 120.0,
        port: int | None = None,
    ) -> list[NodeReport]:
        """The reports of all nodes of a run, one rank on each."""
        while len(self._members) < nodes:
            argv = [str(self._python), "-c", CREW]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._members.append(subprocess.Popen(argv, env=environment(), **pipes))
        self._runs += 1
        names = tuple(f"n{index}" for index in range(nodes))
        others: dict[str, Any] = {"nodes": names, "timeout_s": timeout_s, "inject": inject or {}}
        others["rendezvous"] = f"127.0.0.1:{port or free_port()}"
        reports = []
        for index in range(nodes):
            spec, report = (self._folder / f"{word}-{self._runs}-{index}.json" for word in ("spec", "report"))
            spec.write_text(spec_of(program, params, node_index=index, **others).to_json())
            stdin = self._members[index].stdin
            assert stdin is not None
            stdin.write(f"{spec} {report}\n")
            stdin.flush()
            reports.append(report)
        for member in self._members[:nodes]:
            assert member.stdout is not None
            assert member.stdout.readline() == "done\n"
        return [NodeReport.from_json(report.read_bytes()) for report in reports]

    def close(self) -> None:
        for member in self._members:
            member.kill()
            member.communicate()


def environment() -> dict[str, str]:
    # One thread per rank: several ranks share the few cores of a machine for tests.
    return os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
