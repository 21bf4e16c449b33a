"""`python -m muster.workloads NAME [options]`: a program alone, or one of the verbs `worker`, `exec` and `rank`."""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0 passed, 3 did not pass, 2 bad input."""
    from muster.workloads.alone import NAMES

    name = arguments[0] if arguments else "--help"
    if name == "worker":
        from muster.workloads import worker

        return worker.main(arguments[1:])
    if name == "exec":
        from muster.workloads import exec as execution

        return execution.main(arguments[1:])
    if name == "rank":
        from muster.workloads import rank_process

        return rank_process.main(arguments[1:])
    if name in NAMES:
        from muster.workloads import alone

        return alone.main(name, arguments[1:])
    print("usage: python -m muster.workloads NAME [options]\n")
    print(f"programs, each alone on this machine: {', '.join(NAMES)}")
    print("verbs: worker (serves a coordinator), exec (one run of one node), rank (one rank of a run)")
    print("python -m muster.workloads NAME --help tells what a program measures and its parameters")
    if name in ("--help", "-h"):
        return 0
    print(f"\nmuster.workloads: no program {name!r}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
