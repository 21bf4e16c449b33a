"""A program on its own, from the command line: `python -m muster.workloads all-reduce --ranks 4 --max-bytes 1M`.

On one machine its ranks are started here. Over several machines `torchrun` starts them; rank 0 then prints.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from muster.workloads.bandwidth import COLLECTIVES, table
from muster.workloads.programs import ONE_RANK_PER_NODE, PROGRAMS
from muster.workloads.pytorch import has_torch, usual_device
from muster.workloads.rank import RankFailure, RankResult
from muster.workloads.report import NodeReport
from muster.workloads.run_spec import RunSpec

NAMES = (*COLLECTIVES, *(name for name in PROGRAMS if name != "collective"))
"""What can be asked for: the collectives by their own names, the other programs by theirs."""
FAILED = 3
"""Exit code when the program did its work and did not pass."""


def main(name: str, arguments: list[str]) -> int:
    """Runs the program called `name`. Exit codes: 0 passed, 3 did not pass, 2 bad input."""
    program = "collective" if name in COLLECTIVES else name
    known = params_of(program)
    parser = _parser(name, program, known)
    options = parser.parse_args(arguments)
    params: dict[str, object] = {
        key: _value(getattr(options, key)) for key in known if getattr(options, key, None) is not None
    }
    if program == "collective":
        params["collective"] = name
    if program == "command":
        params["command"] = options.words
    try:
        spec = _spec(options, name, program, params)
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            return _as_rank(spec, options)
        report = _by_ranks(spec)
    except RankFailure as failure:
        print(f"{name}: {failure.message}", file=sys.stderr)
        return 2
    print(report.to_json() if options.json else text_of_report(name, report))
    return 0 if report.ok else FAILED


def params_of(program: str) -> list[str]:
    """Names of the parameters that a program reads."""
    found = getattr(importlib.import_module(f"muster.workloads.{program}"), "PARAMS", [])
    return [key for key in found if key != "collective"]


def _parser(name: str, program: str, known: list[str]) -> argparse.ArgumentParser:
    about = importlib.import_module(f"muster.workloads.{program}").__doc__
    parser = argparse.ArgumentParser(
        prog=f"python -m muster.workloads {name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--ranks", type=int, help="rank processes on this machine (2; on GPUs one for each)")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: GPUs where there are any"
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds until everything is stopped (600)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    for key in known:
        parser.add_argument(f"--{key.replace('_', '-')}", dest=key, help="parameter of the program")
    if program == "command":
        parser.add_argument("words", nargs="+", metavar="-- COMMAND", help="program and its arguments")
    return parser


def _value(text: str) -> object:
    """A parameter as text: JSON where it is JSON, `1M` and words as they stand."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _spec(options: argparse.Namespace, name: str, program: str, params: dict[str, object]) -> RunSpec:
    needs_torch = program not in ONE_RANK_PER_NODE
    if needs_torch and not has_torch():
        raise RankFailure(
            "harness", "PyTorch is not installed: pip install muster-gpu[workloads], or take an image with it"
        )
    device = options.device
    if device == "auto":
        device = usual_device() if needs_torch else "cpu"
    ranks = options.ranks
    if ranks is None:
        ranks = 1 if not needs_torch else _gpus() if device == "cuda" else 2
    if not 1 <= ranks <= 1024:
        raise RankFailure("harness", f"--ranks is {ranks}: give 1 to 1024")
    if program in ONE_RANK_PER_NODE and ranks != 1:
        raise RankFailure("harness", f"{name} speaks of the machine as a whole: it has one rank")
    if not options.timeout > 0:
        raise RankFailure("harness", f"--timeout is {options.timeout:g}: give a number of seconds above 0")
    return RunSpec(
        run=f"alone-{os.getpid()}",
        test=name,
        program=program,
        params=params,
        nodes=(socket.gethostname() or "localhost",),
        ranks_per_node=ranks,
        device=device,
        timeout_s=options.timeout,
    )


def _gpus() -> int:
    torch = importlib.import_module("torch")
    return int(torch.cuda.device_count()) or 1


def _by_ranks(spec: RunSpec) -> NodeReport:
    """Starts the ranks through the verb `exec`, in a process that can be ended."""
    with tempfile.TemporaryDirectory(prefix="muster-alone-") as folder:
        spec_path, report_path = Path(folder) / "spec.json", Path(folder) / "report.json"
        spec_path.write_text(spec.to_json())
        argv = [*this_program(), "exec", "--spec", str(spec_path), "--report", str(report_path)]
        done = subprocess.run(argv, check=False, stdin=subprocess.DEVNULL)
        if not report_path.exists():
            raise RankFailure("harness", f"the ranks ended with {done.returncode} and left no report")
        return NodeReport.from_json(report_path.read_bytes())


def this_program() -> list[str]:
    """How this package is started again, also from within an archive."""
    archive = Path(__file__).parents[2]
    if archive.is_file():
        return [sys.executable, str(archive)]
    return [sys.executable, "-m", "muster.workloads"]


def _as_rank(spec: RunSpec, options: argparse.Namespace) -> int:
    """One rank under `torchrun`."""
    from dataclasses import replace

    from muster.workloads.rank_process import run_rank

    try:
        rank, world, local = (int(os.environ[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        per_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    except (KeyError, ValueError) as error:
        raise RankFailure("harness", f"the environment of torchrun is not complete: {error}") from error
    nodes = tuple(f"node-{index}" for index in range(max(1, world // per_node)))
    rendezvous = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    spec = replace(spec, nodes=nodes, node_index=rank // per_node, ranks_per_node=per_node, rendezvous=rendezvous)
    result = run_rank(spec, rank=rank, world_size=world, local_rank=local)
    if rank == 0 or not result.ok:
        print(result.to_json() if options.json else text_of_result(spec.test, rank, result))
    return 0 if result.ok else FAILED


def text_of_report(name: str, report: NodeReport) -> str:
    """The report for people."""
    lines = [_headline(name, report.ok, report.value, report.unit, report.reason, report.message)]
    if report.sizes:
        lines += ["", table(report.sizes)]
    if len(report.ranks) > 1:
        lines.append("")
        for each in report.ranks:
            parts = [f"rank {each.get('rank')}"]
            for key, unit in (("value", report.unit), ("computeS", "s own work"), ("waitS", "s in collectives")):
                number = each.get(key)
                if isinstance(number, int | float):
                    parts.append(f"{number:.6g} {unit}".rstrip())
            lines.append("  ".join(parts))
    lines += _details(report.transport, dict(report.versions), dict(report.facts))
    return "\n".join(lines)


def text_of_result(name: str, rank: int, result: RankResult) -> str:
    """The result of one rank for people."""
    lines = [_headline(f"{name} (rank {rank})", result.ok, result.value, result.unit, result.reason, result.message)]
    if result.sizes:
        lines += ["", table(result.sizes)]
    return "\n".join([*lines, *_details(result.transport, dict(result.versions), dict(result.facts))])


def _headline(name: str, ok: bool, value: float | None, unit: str, reason: str, message: str) -> str:
    number = "" if value is None else f", {value:.4g} {unit}"
    return f"{name}: {'passed' if ok else f'did not pass ({reason})'}{number}{f': {message}' if message else ''}"


def _details(transport: str, versions: dict[str, str], facts: dict[str, float]) -> list[str]:
    lines = [""] if transport or versions or facts else []
    if transport:
        lines.append(f"transport: {transport}")
    lines += [f"{key}: {versions[key]}" for key in sorted(versions)]
    return lines + [f"{key}: {facts[key]:.6g}" for key in sorted(facts)]
