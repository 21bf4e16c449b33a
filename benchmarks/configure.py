"""How long configuring takes: `muster recipe` and `muster bundle`, cold and warm, and how much memory.

Goal: `muster recipe` and then `muster bundle`, each a process of its own, at most 400 ms together.

Cold means: a new process with bytecode in the cache, as an installation has it after its first start. Medians of
several starts, beside starting Python and doing nothing in the same run. Prints one line per figure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

GOAL_MS = 400.0
CRITERIA = {"service": "eks", "accelerator": "h100", "intent": "training", "os": "ubuntu", "platform": "kubeflow"}
DEPLOYERS = ("helm", "argocd", "argocd-helm", "flux", "helmfile")
REPOSITORY = ["--repo", "https://git.example.com/fleet.git", "--revision", "main"]
MUSTER = [sys.executable, "-m", "muster.cli.main"]


class Cost(NamedTuple):
    """Of one process: wall time and CPU time in ms, peak of its memory in MiB."""

    wall_ms: float
    cpu_ms: float
    peak_mib: float


def start(command: list[str], environment: dict[str, str]) -> Cost:
    """Run `command` to its end."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    wall_ms = (time.perf_counter() - begin) * 1000
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(wall_ms, (used.ru_utime + used.ru_stime) * 1000, used.ru_maxrss / 1024)


def median(costs: list[Cost]) -> Cost:
    wall_ms, cpu_ms, peak_mib = zip(*costs, strict=True)
    return Cost(statistics.median(wall_ms), statistics.median(cpu_ms), max(peak_mib))


def warm_ms(starts: int) -> tuple[float, float, int]:
    """(one leaf, all leaves, how many), resolved in this process; median and one pass, in milliseconds of CPU."""
    from muster.configure.catalogue import load
    from muster.configure.criteria import parse_criteria
    from muster.configure.matching import unavailable
    from muster.configure.resolve import leaf_names, resolve

    catalogue = load()
    one = parse_criteria(dict(CRITERIA))
    every = [
        parse_criteria(dict(catalogue.overlays[name].criteria))
        for name in leaf_names(catalogue)
        if not unavailable(name, catalogue)
    ]
    times = []
    for _ in range(starts * 5):
        begin = time.process_time()
        resolve(one, catalogue)
        times.append((time.process_time() - begin) * 1000)
    begin = time.process_time()
    for criteria in every:
        resolve(criteria, catalogue)
    return statistics.median(times), (time.process_time() - begin) * 1000, len(every)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer starts")
    starts = 5 if parser.parse_args().quick else 21
    # Before anything is imported here: a new process counts the memory of the one that started it.
    with tempfile.TemporaryDirectory() as folder:
        cold(Path(folder), starts)
    one, every, count = warm_ms(starts)
    print(f"resolve one leaf, warm: {one:.1f} ms")
    print(f"resolve all {count} leaves: {every:.0f} ms")


def cold(folder: Path, starts: int) -> None:
    """Start the verbs in processes of their own and print what they took."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    recipe = folder / "recipe.yaml"
    stated = [part for key, value in CRITERIA.items() for part in (f"--{key}", value)]
    resolve = [*MUSTER, "recipe", *stated, "-o", str(recipe)]
    bare = [sys.executable, "-c", "pass"]

    def bundle(deployer: str) -> list[str]:
        more = [] if deployer in ("helm", "helmfile") else REPOSITORY
        return [*MUSTER, "bundle", str(recipe), "--deployer", deployer, "-o", str(folder / "bundle"), *more]

    first = start(resolve, environment)
    costs: dict[str, list[Cost]] = {name: [] for name in ("pass", "recipe", *DEPLOYERS)}
    for name in DEPLOYERS:
        start(bundle(name), environment)
        shutil.rmtree(folder / "bundle")
    for _ in range(starts):
        costs["pass"].append(start(bare, environment))
        costs["recipe"].append(start(resolve, environment))
        for name in DEPLOYERS:
            costs[name].append(start(bundle(name), environment))
            shutil.rmtree(folder / "bundle")
    found = {name: median(some) for name, some in costs.items()}
    report(found, first)


def report(found: dict[str, Cost], first: Cost) -> None:
    nothing, recipe = found["pass"], found["recipe"]
    print(f"python -c pass: {nothing.wall_ms:.0f} ms, CPU {nothing.cpu_ms:.0f} ms")
    print(
        f"muster recipe, cold: {recipe.wall_ms:.0f} ms, CPU {recipe.cpu_ms:.0f} ms, {recipe.peak_mib:.0f} MiB;"
        f" without any bytecode, the standard library's included, {first.wall_ms:.0f} ms"
    )
    for name in DEPLOYERS:
        total_ms = recipe.wall_ms + found[name].wall_ms
        print(
            f"muster recipe + bundle for {name}: {total_ms:.0f} ms, CPU {recipe.cpu_ms + found[name].cpu_ms:.0f} ms,"
            f" bundle {found[name].peak_mib:.0f} MiB, ratio {total_ms / nothing.wall_ms:.1f},"
            f" goal {GOAL_MS:.0f} ms, {'met' if total_ms <= GOAL_MS else 'missed'}"
        )


if __name__ == "__main__":
    main()
