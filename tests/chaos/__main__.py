"""Seeded chaos on a virtual clock: `python -m tests.chaos --seeds N`, and `--seed K` to play one again."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import nullcontext

from tests.chaos.mix import Kind
from tests.chaos.mutants import MUTANTS, Mutant, named
from tests.chaos.play import Outcome, play

FIRST = 1
SMALL = 6
"""Nodes of a play that looks for a planted bug."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: no invariant broke; 3: one did."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds to play")
    parser.add_argument("--seed", type=int, help="play this one")
    parser.add_argument("--first", type=int, default=FIRST, help="the first of the seeds")
    parser.add_argument("--steps", type=int, default=0, help="deeds of each seed; 0: as many as it draws")
    parser.add_argument("--nodes", type=int, default=0, help="nodes; 0: as many as it draws")
    parser.add_argument("--mutant", default="", help="plant this bug first")
    parser.add_argument("--mutants", action="store_true", help="find every planted bug and print a table")
    parser.add_argument("--verbose", action="store_true", help="print every event")
    parser.add_argument("--kinds", default="", help="kinds of trouble, with commas; empty: as each seed draws")
    asked = parser.parse_args(argv)
    kinds = tuple(Kind(word) for word in asked.kinds.split(",") if word)
    seeds = [asked.seed] if asked.seed is not None else list(range(asked.first, asked.first + asked.seeds))
    if asked.mutants:
        return hunt(MUTANTS, seeds)
    began = time.monotonic()
    outcomes, broken = [], 0
    for seed in seeds:
        one_began = time.monotonic()
        with named(asked.mutant).planted() if asked.mutant else nullcontext():
            out = print if asked.verbose else None
            outcome = play(seed, deeds=asked.steps, nodes=asked.nodes, kinds=kinds, out=out)
        outcomes.append(outcome)
        broken += bool(outcome.violations)
        if outcome.violations:
            print(told(outcome, asked.steps, asked.nodes, asked.mutant, asked.kinds), flush=True)
        elif asked.seed is not None:
            print(f"seed {seed}: {outcome.steps} steps, trace {outcome.digest}, {time.monotonic() - one_began:.1f} s")
    print(summary(outcomes, time.monotonic() - began))
    return 3 if broken else 0


def hunt(mutants: Sequence[Mutant], seeds: Sequence[int]) -> int:
    """Play each mutant until a seed finds it; print a table. 3 when one was not found."""
    missed = 0
    for mutant in mutants:
        began, found, tried = time.monotonic(), None, 0
        for seed in seeds:
            tried += 1
            with mutant.planted():
                outcome = play(seed, nodes=SMALL, kinds=mutant.kinds)
            if outcome.violations:
                found = outcome
                break
        took_s = time.monotonic() - began
        missed += found is None
        what = f"seed {found.mix.seed}: {found.violations[0].invariant}" if found is not None else "NOT FOUND"
        print(f"{mutant.name:<26} {what:<32} {tried:3d} seeds {took_s:6.1f} s  {mutant.recreates}", flush=True)
    return 3 if missed else 0


def told(outcome: Outcome, deeds: int = 0, nodes: int = 0, mutant: str = "", kinds: str = "") -> str:
    """A failing seed, for whoever has to understand it."""
    first = outcome.violations[0]
    command = f"python -m tests.chaos --seed {outcome.mix.seed}"
    command += f" --steps {deeds}" if deeds else ""
    command += f" --nodes {nodes}" if nodes else ""
    command += f" --mutant {mutant}" if mutant else ""
    command += f" --kinds {kinds}" if kinds else ""
    lines = [
        f"seed {outcome.mix.seed}: {first.invariant} broke at step {first.step}: {first.message}",
        f"  kinds: {', '.join(sorted(outcome.mix.kinds))}",
        *(f"  {line}" for line in outcome.journal),
        f"  again: {command}   (trace {outcome.digest})",
    ]
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome], took_s: float) -> str:
    steps = sum(o.steps for o in outcomes)
    years = sum(o.node_years for o in outcomes)
    found = sum(bool(o.violations) for o in outcomes)
    rate = 60 * steps / max(took_s, 1e-9)
    return (
        f"{len(outcomes)} seeds, {steps} steps, {rate:.0f} steps/min, {years:.2f} node-years simulated, "
        f"{found} with violations"
    )


if __name__ == "__main__":
    raise SystemExit(main())
