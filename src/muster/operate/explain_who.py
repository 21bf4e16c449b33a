"""Who can change the state of a node now, and with which command. Pure."""

from __future__ import annotations

from typing import assert_never

from muster.operate.model import BlockerKind
from muster.plain_text import plain
from muster.resources.node_health import CauseKind, Lifecycle, NodeHealth, State


def who_can(health: NodeHealth, life: Lifecycle) -> list[str]:
    """Commands that have an effect in the state that the node is in; none that would be answered with a refusal."""
    name = health.metadata.name
    command = f"muster node {name}"
    found = _people(health, life, command)
    if health.spec.paused:
        patch = """'{"spec":{"paused":false}}'"""
        found.append(f"kubectl patch nodehealth {name} --type merge -p {patch} ends the pause.")
    return found


def _people(health: NodeHealth, life: Lifecycle, command: str) -> list[str]:
    if health.spec.hold is not None:
        return [f"'{command} release' ends the hold of {plain(health.spec.hold.by, 60)}."]
    hold = f"'{command} hold --reason TEXT' takes it out of service."
    waits = {b.kind for b in life.blockers}
    approve = f"'{command} approve' lets it go on where approval is asked, in a blackout or past a halted roll-out."
    if BlockerKind.MAINTENANCE in waits:
        if life.state is State.IN_SERVICE:
            return [f"'{command} defer --until TIME' puts its maintenance off.", approve, hold]
        return [
            "Whoever maintains it hands it back (status.handedBack of the Maintenance).",
            f"'{command} hold --reason TEXT' keeps it out of service after that.",
        ]
    match life.state:
        case State.IN_SERVICE:
            return [approve, hold] if waits & {BlockerKind.BUDGET, BlockerKind.WAVE} else [hold]
        case State.UNCERTIFIED | State.CERTIFYING:
            return _on_the_way(command, waits)
        case State.QUARANTINED | State.DRAINING:
            if life.history and life.history[-1].cause.kind is CauseKind.MAINTENANCE:
                return [
                    "Whoever planned the maintenance may cancel it (spec.cancelled of the Maintenance).",
                    f"'{command} defer --until TIME' puts it off for this node, as far as it may be.",
                    f"'{command} hold --reason TEXT' stops the drain.",
                ]
            return _out(command, waits)
        case State.REPAIRING:
            return [
                f"'{command} release' ends the episode: a repair that has not begun is called back, one that has is "
                "waited for.",
                f"'{command} hold --reason TEXT' stops after this repair, '{command} retire' gives the node up.",
            ]
        case State.OUT_OF_SERVICE:
            return ["A person decides.", f"'{command} retry' sends it to its tests after somebody worked on it."]
        case _:
            assert_never(life.state)


def _on_the_way(command: str, waits: set[str]) -> list[str]:
    first = "It returns by itself when it passes."
    if BlockerKind.PERSON in waits:
        first = "A person decides; what it waits for says how."
    return [first, f"'{command} hold --reason TEXT' keeps it out of service."]


def _out(command: str, waits: set[str]) -> list[str]:
    release = f"'{command} release' ends the episode; the node must still pass its tests."
    if BlockerKind.PERSON in waits:
        return [f"'{command} retry' lets the controller go on.", release]
    if BlockerKind.CORRELATION in waits:
        return ["Whoever made the change that many nodes share; the controller goes on when it is undone.", release]
    if BlockerKind.FAULT in waits:
        show = f"'muster policy show {command.rpartition(' ')[2]}'"
        return [f"Whoever mends what is at fault; its rule asks for no more ({show}).", release]
    return ["The controller goes on by itself.", release]
