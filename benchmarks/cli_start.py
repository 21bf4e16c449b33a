"""How long `muster --help` takes, beside starting Python and doing nothing. Goal: at most 150 ms.

Median of several starts; prints one summary line.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

GOAL_MS = 150.0


def median_ms(command: list[str], starts: int) -> float:
    """Median wall time of one start, in milliseconds."""
    times = []
    for _ in range(starts):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer starts")
    starts = 7 if parser.parse_args().quick else 31
    ours = median_ms([sys.executable, "-m", "muster.cli.main", "--help"], starts)
    bare = median_ms([sys.executable, "-c", "pass"], starts)
    print(
        f"muster --help: {ours:.0f} ms, python -c pass: {bare:.0f} ms, ratio {ours / bare:.2f},"
        f" goal {GOAL_MS:.0f} ms, {'met' if ours <= GOAL_MS else 'missed'}"
    )


if __name__ == "__main__":
    main()
