"""One rank as a process: `python -m muster.workloads rank --spec FILE --result FILE [--progress FILE]`.

Reads RANK, WORLD_SIZE and LOCAL_RANK from the environment, as `torchrun` sets them. Leaves the result as JSON,
written at once (renamed into place), and ends with 0 when a result was left, also when it tells of a failure.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from muster.workloads.context import RankContext, first_line
from muster.workloads.programs import PROGRAMS
from muster.workloads.progress import Progress
from muster.workloads.rank import RankFailure, RankResult, failed
from muster.workloads.run_spec import RunSpec


def run_rank(
    spec: RunSpec, *, rank: int, world_size: int, local_rank: int, progress: Path | None = None
) -> RankResult:
    """Runs the program of `spec` as one rank. Never raises for what the program meets."""
    context, finished = None, False
    try:
        program = PROGRAMS.get(spec.program)
        if program is None:
            raise RankFailure("harness", f"no program {spec.program!r}: there are {', '.join(PROGRAMS)}")
        context = RankContext(
            spec, rank=rank, world_size=world_size, local_rank=local_rank, progress=Progress(progress)
        )
        result = program(context).honest()
        finished = True
        return result
    except RankFailure as failure:
        return failed(failure)
    except MemoryError as error:
        return RankResult(ok=False, reason="harness", message=f"out of memory: {first_line(error)}")
    except Exception as error:
        # A program that fails in a way it did not foresee speaks of itself, never of a node.
        traceback.print_exc()
        return RankResult(ok=False, reason="harness", message=first_line(error))
    finally:
        if context is not None:
            context.close(finished=finished)


def main(arguments: list[str]) -> int:
    """The verb `rank`."""
    import argparse

    parser = argparse.ArgumentParser(prog="muster.workloads rank", description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help="RunSpec as JSON")
    parser.add_argument("--result", type=Path, required=True, help="where the RankResult is left")
    parser.add_argument("--progress", type=Path, help="where the rank says what it is doing")
    options = parser.parse_args(arguments)
    try:
        spec = RunSpec.from_json(options.spec.read_text())
        rank, world_size, local_rank = (int(os.environ[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    except (OSError, ValueError, KeyError) as error:
        result = RankResult(ok=False, reason="harness", message=f"the rank cannot start: {first_line(error)}")
    else:
        result = run_rank(spec, rank=rank, world_size=world_size, local_rank=local_rank, progress=options.progress)
    written = options.result.with_name(options.result.name + ".part")
    written.write_text(result.to_json())
    written.replace(options.result)
    return 0
