"""What a round costs inside workers that stay, beside starting everything for it: the same run, in one sitting.

`inside`: the run is handed to workers that are up. `fresh`: new worker processes are started, import PyTorch, carry
out the run and end. Both form a process group of gloo over loopback and run the same all-reduce. Needs PyTorch
(the extra `workloads`), or a Python that has it in MUSTER_TORCH_PYTHON. Prints one summary line; exits with 1 when a
run fails or a round inside workers is not cheaper.

A fresh start in a cluster also pays for scheduling, image and container; none of that is counted here.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from muster.certify.catalogue import CatalogueTest
from muster.certify.isolation.plan import PlannedRun, Role
from muster.certify.local_fleet import OWNER, local_tests, node_names
from muster.certify.runners import Work
from muster.certify.runners.local import LocalRunner, Place
from muster.clock import SystemClock

CLOCK = SystemClock()


async def _quiet(_: str) -> None:
    return


async def one_round(runner: LocalRunner, names: tuple[str, ...], test: CatalogueTest, number: int) -> float:
    """Seconds of one run over all of `names`."""
    run = PlannedRun(f"bench-{number}", number, test.name, names, Role.CONTROL, 0)
    work = Work(OWNER, (run,), {test.name: test}, {}, CLOCK.now() + timedelta(minutes=5))
    begun = time.perf_counter()
    ends = (await runner.carry_out(work, _quiet))[run.id]
    bad = [e for e in ends if e.report is None or not e.report.ok]
    if bad:
        raise SystemExit(f"The run failed on {bad[0].node}: {bad[0]}.")
    return time.perf_counter() - begun


async def measure(python: Path, workers: int, inside: int, fresh: int) -> tuple[list[float], list[float]]:
    """Seconds of each round inside workers, and of each fresh start."""
    names, (test,) = node_names(workers), local_tests(("all-reduce",))
    fresh_s = []
    for _ in range(fresh):
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            async with LocalRunner(
                CLOCK, dict.fromkeys(names, Place()), python=python, folder=Path(folder)
            ) as runner:
                await one_round(runner, names, test, 0)
        fresh_s.append(time.perf_counter() - begun)
    with tempfile.TemporaryDirectory() as folder:
        async with LocalRunner(CLOCK, dict.fromkeys(names, Place()), python=python, folder=Path(folder)) as runner:
            inside_s = [await one_round(runner, names, test, i) for i in range(inside)]
    return inside_s, fresh_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two workers and few repeats")
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    python = Path(os.environ.get("MUSTER_TORCH_PYTHON", sys.executable))
    workers = 2 if options.quick else options.workers
    inside_s, fresh_s = asyncio.run(measure(python, workers, 3 if options.quick else 10, 1 if options.quick else 3))
    inside, fresh = statistics.median(inside_s), statistics.median(fresh_s)
    print(
        f"round over {workers} workers: {inside:.2f} s inside workers ({min(inside_s):.2f} to {max(inside_s):.2f}), "
        f"{fresh:.2f} s with a fresh start, ratio {fresh / inside:.1f}"
    )
    sys.exit(0 if inside < fresh else 1)


if __name__ == "__main__":
    main()
