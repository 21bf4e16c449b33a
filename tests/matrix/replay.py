"""Play one case again: `python -m tests.matrix.replay ID`. Prints what the controllers told and what is wrong."""

from __future__ import annotations

import sys

from muster.sim.virtual import VirtualClock, run_virtual
from tests.matrix.axes import Case, case_of
from tests.matrix.play import Play
from tests.matrix.setting import START


def said(case: Case, found: list[str]) -> str:
    """One line that names the failure and plays it again."""
    return f"python -m tests.matrix.replay '{case.id}'  # {'; '.join(found)[:600]}"


def main() -> int:
    """Exit code 1 when an invariant is broken, 2 when the argument is no case."""
    try:
        case = case_of(sys.argv[1] if len(sys.argv) > 1 else "")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2

    async def story(clock: VirtualClock) -> Play:
        play = Play(case, clock)
        await play.run()
        return play

    played = run_virtual(story, start=START)
    print("\n".join(played.cluster.lines))
    print("\n".join(played.verdict) or "nothing is wrong")
    return 1 if played.verdict else 0


if __name__ == "__main__":
    sys.exit(main())
