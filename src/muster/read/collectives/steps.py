"""Progress lines of a training job that stand between messages: they date a failure by the work that was saved."""

from __future__ import annotations

import re
from typing import Any

from muster.read.report import Value

MAX_STEPS = 200
"""Figures of the last steps that are kept."""
_STEP = re.compile(
    r"\b(?:iter(?:ation)?|step|global[_ ]step)[ =:]{1,10}(?P<step>\d{1,12})(?![\d.eE])"
    r"(?: ?/ {0,12}(?P<total>\d{1,12}))?\b",
    re.I,
)
_TIME = re.compile(
    r"(?:\b(?:iter(?:ation)?[ _]?|step[ _]?|elapsed )?time(?: per iteration)?)(?: ?\((?P<u1>ms|s)\))?[ :=]{1,3}"
    r"(?P<time>\d{1,12}(?:\.\d{1,9})?) ?(?P<u2>ms|s)?\b",
    re.I,
)
_SPEED = re.compile(
    r"\b(?:speed|throughput)[ :=]{1,3}(?P<speed>-|\d{1,12}(?:\.\d{1,9})?) ?(?P<unit>[A-Za-z]+/[A-Za-z/]+)?"
)
_PROGRESS = re.compile(r"\|\s*(?P<step>\d{1,12})/(?P<total>\d{1,12}) \[(?P<spent>[\d:]{4,12})<")
_UNITS = {"toks/s/device": "tokens/s/device", "tok/s/device": "tokens/s/device", "toks/s": "tokens/s"}


class Steps:
    """The last steps that a job printed."""

    def __init__(self) -> None:
        self.last: int | None = None
        self.total: int | None = None
        self.times: list[float] = []
        self.speeds: list[float | None] = []
        self.time_unit = "ms"
        self.speed_unit: str | None = None
        self.bar = False

    def take(self, text: str) -> bool:
        """Learn from one line that is none of NCCL's or torch's. True when it told a step."""
        if found := _PROGRESS.search(text):
            self.last, self.total, self.bar = int(found["step"]), int(found["total"]), True
            return True
        found = _STEP.search(text)
        if found is None:
            return False
        timed, speed = _TIME.search(text, found.end()), _SPEED.search(text, found.end())
        if timed is None and speed is None and "loss" not in text:
            return False
        self.last = int(found["step"])
        if found["total"]:
            self.total = int(found["total"])
        if timed is not None and len(self.times) < MAX_STEPS:
            self.times.append(float(timed["time"]))
            self.time_unit = timed["u1"] or timed["u2"] or "s"
        if speed is not None and len(self.speeds) < MAX_STEPS:
            self.speeds.append(None if speed["speed"] == "-" else _tidy(float(speed["speed"])))
            unit = speed["unit"]
            self.speed_unit = _UNITS.get(unit, unit) if unit else self.speed_unit
        return True

    def values(self) -> dict[str, Value]:
        values: dict[str, Value] = {}
        if self.last is None:
            return values
        values["last_step"] = Value(self.last)
        if not self.bar:
            values["last_completed_step"] = Value(self.last)
        if self.total is not None:
            values["total_steps"] = Value(self.total)
        if self.times:
            values["step_time"] = Value(list(self.times), self.time_unit)
        if self.speeds:
            values["throughput"] = Value(list(self.speeds), self.speed_unit)
        return values


def _tidy(value: float) -> Any:
    return int(value) if value == int(value) else value
