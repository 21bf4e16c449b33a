"""Log profiles: how one training framework writes its steps, checkpoints and starts, as data (`data/*.yaml`).

A profile is a mapping of `name`, `about` and `patterns`. Each pattern has

- `event`: `step`, `detail` (figures of a step on a line of their own), `save-begin`, `save-end`, `load`, `start`,
  `end`, `validation`, `skip`;
- `regex` with named groups from QUANTITIES, and `fields` (a quantity and its own regex each, with one group),
  searched in the rest of the line, because versions differ in which columns they print;
- `units` of quantities (`ms`, `us`, `s`, `percent`, `clock` for hh:mm:ss);
- `contains`: words of which one must be in the line; what makes reading fast;
- `examples`: lines and what they give. One that does not match as it says rejects the whole profile.

`<num>` and `<int>` in a regex stand for a number as programs print it (also nan) and for a whole number with
separators.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any, Final

from muster.errors import BadInputError

MAX_PATTERN: Final = 600
MAX_PATTERNS: Final = 64
GENERIC: Final = "plain-steps"
"""The profile of lines that any program may write; it needs more of them to be recognised."""
QUANTITIES: Final = (
    "step",
    "total_steps",
    "epoch",
    "epoch_step",
    "epoch_steps",
    "step_time",
    "steps_per_s",
    "duration",
    "elapsed",
    "tflops_per_gpu",
    "mfu",
    "tokens_per_s",
    "samples_per_s",
    "loss",
    "skipped",
    "skipped_total",
    "nan_iterations",
    "memory_gib",
)
_SCALE: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "percent": 1e-2, "min": 60.0}
_NUM = r"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|inf|Infinity)"
_KEYS = {"event", "regex", "fields", "units", "contains", "examples", "attach", "background", "first_epoch"}


class Event(StrEnum):
    """What a line tells."""

    STEP = "step"
    DETAIL = "detail"
    SAVE_BEGIN = "save-begin"
    SAVE_END = "save-end"
    LOAD = "load"
    START = "start"
    END = "end"
    VALIDATION = "validation"
    SKIP = "skip"


@dataclass(frozen=True)
class Pattern:
    """One kind of line. `attach` says whether figures of a `detail` belong to the step `before` it or the `next`.

    `background`: a checkpoint that is written while training goes on.
    """

    event: Event
    regex: re.Pattern[str]
    fields: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    contains: tuple[str, ...] = ()
    attach: str = "before"
    background: bool = False
    first_epoch: int = 0
    """The number that the program gives to its first epoch."""

    def read(self, text: str) -> dict[str, float] | None:
        """The quantities of a line, or None when it is another kind. What is no number is NaN, what is missing is
        left out."""
        if self.contains and not any(word in text for word in self.contains):
            return None
        match = self.regex.search(text)
        if match is None:
            return None
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        for name, regex in self.fields.items():
            part = regex.search(text)
            if part is not None and part[1] is not None:
                found[name] = part[1]
        return {name: self._number(name, value) for name, value in found.items()}

    def _number(self, name: str, text: str) -> float:
        unit = self.units.get(name, "")
        if unit == "clock":
            return _clock(text)
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            return math.nan
        return value * _SCALE.get(unit, 1.0)


@dataclass(frozen=True)
class Profile:
    """How one framework writes its log."""

    name: str
    patterns: tuple[Pattern, ...]

    def read(self, text: str) -> tuple[Pattern, dict[str, float]] | None:
        """The first pattern that a line fits, and its quantities."""
        for pattern in self.patterns:
            found = pattern.read(text)
            if found is not None:
                return pattern, found
        return None


def _clock(text: str) -> float:
    seconds = 0.0
    for part in text.replace(" days, ", ":").split(":"):
        try:
            seconds = seconds * 60 + float(part)
        except ValueError:
            return math.nan
    return seconds


@cache
def profiles() -> tuple[Profile, ...]:
    """The profiles that come with Muster, in the order in which ties are decided."""
    from muster import yamlio  # importing YAML costs more than reading a short log

    folder = resources.files("muster.read.training").joinpath("data")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    loaded = [read_profile(yamlio.loads(folder.joinpath(name).read_text(), name), name) for name in names]
    return tuple(sorted(loaded, key=lambda profile: (profile.name == GENERIC, profile.name)))


def read_profile(content: object, source: str) -> Profile:
    """A profile from plain values. Raises BadInputError naming `source` and what is wrong with it."""
    if not isinstance(content, Mapping) or not isinstance(content.get("name"), str):
        raise BadInputError(f"The log profile in {source} must be a mapping with a name.")
    rows = content.get("patterns")
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_PATTERNS:
        raise BadInputError(f"The log profile in {source} needs 1 to {MAX_PATTERNS} patterns.")
    unknown = sorted(str(key) for key in content if key not in ("name", "about", "patterns"))
    if unknown:
        raise BadInputError(f"The log profile in {source} has an unknown key {unknown[0]!r:.40}.")
    patterns = []
    for position, row in enumerate(rows, start=1):
        where = f"pattern {position} of the log profile in {source}"
        pattern = _pattern(row, where)
        _check_examples(pattern, row["examples"], where)
        patterns.append(pattern)
    if not any(pattern.event is Event.STEP for pattern in patterns):
        raise BadInputError(f"The log profile in {source} has no pattern for steps.")
    return Profile(content["name"], tuple(patterns))


def _pattern(row: object, where: str) -> Pattern:
    if not isinstance(row, Mapping) or not set(row) <= _KEYS:
        raise BadInputError(f"{where[0].upper()}{where[1:]} must be a mapping of {', '.join(sorted(_KEYS))}.")
    try:
        event = Event(str(row.get("event")))
    except ValueError:
        raise BadInputError(f"event of {where} must be one of {', '.join(Event)}.") from None
    examples = row.get("examples")
    if not isinstance(examples, list) or not examples:
        raise BadInputError(f"{where[0].upper()}{where[1:]} needs examples: a line and what it gives.")
    regex = _regex(row.get("regex"), f"regex of {where}")
    fields = row.get("fields") or {}
    if not isinstance(fields, Mapping):
        raise BadInputError(f"fields of {where} must be a mapping.")
    read = {str(name): _regex(text, f"{name} of {where}") for name, text in fields.items()}
    groupless = [name for name, part in read.items() if part.groups != 1]
    strange = sorted({*read, *regex.groupindex} - set(QUANTITIES))
    if groupless or strange:
        raise BadInputError(f"{(groupless + strange)[0]!r:.40} of {where} must be a known quantity with one group.")
    if event is Event.STEP and not {"step", "epoch_step"} & {*regex.groupindex, *read}:
        raise BadInputError(f"{where[0].upper()}{where[1:]} must give the step.")
    units = row.get("units") or {}
    if not isinstance(units, Mapping) or any(str(unit) not in (*_SCALE, "clock") for unit in units.values()):
        raise BadInputError(f"units of {where} must be {', '.join(_SCALE)} or clock.")
    words = row.get("contains") or ()
    words = (words,) if isinstance(words, str) else tuple(str(word) for word in words)
    return Pattern(
        event=event,
        regex=regex,
        fields=read,
        units={str(name): str(unit) for name, unit in units.items()},
        contains=words,
        attach="next" if row.get("attach") == "next" else "before",
        background=row.get("background") is True,
        first_epoch=1 if row.get("first_epoch") == 1 else 0,
    )


def _regex(text: object, where: str) -> re.Pattern[str]:
    if not isinstance(text, str) or not 0 < len(text) <= MAX_PATTERN:
        raise BadInputError(f"{where} must be a regular expression of at most {MAX_PATTERN} characters.")
    try:
        return re.compile(text.replace("<num>", f"(?:{_NUM})").replace("<int>", r"\d[\d,]{0,15}"))
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInputError(f"{where[0].upper()}{where[1:]} is not a regular expression: {error}.") from None


def _check_examples(pattern: Pattern, examples: list[Any], where: str) -> None:
    for example in examples:
        if not isinstance(example, Mapping) or not isinstance(example.get("line"), str):
            raise BadInputError(f"An example of {where} must have a line.")
        got = pattern.read(example["line"])
        if got is None:
            raise BadInputError(f"The example {example['line']!r:.80} does not fit {where}.")
        wanted = example.get("gives") or {}
        for name, value in wanted.items():
            found = got.get(name)
            same = found is not None and (
                math.isclose(found, float(value), rel_tol=1e-9) or (math.isnan(found) and math.isnan(float(value)))
            )
            if not same:
                raise BadInputError(
                    f"The example {example['line']!r:.80} of {where} gives {name} {found}, not {value}."
                )


def user_profile(context: Mapping[str, Any]) -> Profile | None:
    """The profile told under `log_profile` of a context. Raises BadInputError."""
    content = context.get("log_profile")
    return None if content is None else read_profile(content, "log_profile of the context")
