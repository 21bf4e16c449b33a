"""`dcgmi health -c`: the table of DCGM 2 to 4, the older table with one line a system, and the JSON of `-j`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.read.smi.document import Line

_MAX_ENTITIES = 4096
_MAX_DEPTH = 12
_ROW = re.compile(r"\s{0,8}\|\s?(?P<left>[^|]{0,120})\|\s?(?P<right>[^|]{0,200})\|?\s*$")
_OVERALL = re.compile(r"Overall Health:?\s{0,60}\|?\s{0,4}(?P<word>[A-Za-z][A-Za-z ]{1,30}?)\s{0,80}\|?\s*$")
_ARROW = re.compile(r"(?P<indent>\s{0,40})(?:->\s{1,4})?(?P<label>\S.{0,80}?)\s*$")
_OLD_GPU = re.compile(r"GPU ID:\s{1,4}(?P<id>\d{1,4})")
_SYSTEM = re.compile(
    r"(?P<system>[A-Za-z][\w ]{1,40}?(?:system|Driver|[Ff]atal)): (?P<word>Healthy|Warning|Failure)"
    r"(?: - (?P<why>.*))?"
)
GROUPS = ("GPU", "NvSwitch", "Switch", "CPU", "GPU_I", "GPU_CI", "ConnectX")
WORDS = ("Healthy", "Warning", "Failure", "Internal error")


@dataclass
class Trouble:
    """One system of one entity that is not healthy."""

    group: str
    entity: int | None
    system: str
    word: str
    message: str = ""
    lines: list[Line] = field(default_factory=list)


@dataclass
class Health:
    """`overall`: `Healthy`, `Warning`, `Failure`, None when the text does not get there."""

    overall: str | None
    troubles: list[Trouble] = field(default_factory=list)
    complete: bool = True
    entities: dict[tuple[str, int], str] = field(default_factory=dict)


def parse_table(lines: Sequence[Line]) -> Health:
    """Read the table. It is complete when its last line is a rule."""
    health = Health(None)
    group, entity = "", None
    current: Trouble | None = None
    last = ""
    for line in lines:
        text = line.text.strip()
        if not text:
            continue
        last = text
        if health.overall is None and (match := _OVERALL.search(text)) is not None:
            health.overall = _word(match["word"])
            continue
        row = _ROW.match(line.text)
        if row is None:
            continue
        if (old := _OLD_GPU.search(row["left"])) is not None:
            group, entity, current = "GPU", int(old["id"]), None
            health.entities[group, entity] = _word(row["right"].strip())
            continue
        label, right = row["left"].strip(), row["right"].strip()
        if label.startswith("->"):
            label = label[2:].strip()
        if label in GROUPS and not right:
            group, entity, current = label, None, None
        elif label.isdigit() and group and len(health.entities) < _MAX_ENTITIES:
            entity, current = int(label), None
            health.entities[group, entity] = _word(right)
        elif label == "Errors" or "Health Monitor Report" in text:
            current = None
        elif label and _word(right) in WORDS and group:
            current = Trouble(group, entity, label, _word(right), lines=[line])
            health.troubles.append(current)
        elif not label and right:
            current = _continue(health, group, entity, current, right, line)
    health.complete = last.startswith("+") and health.overall is not None and len(last) > 3
    return health


def _continue(
    health: Health, group: str, entity: int | None, current: Trouble | None, right: str, line: Line
) -> Trouble | None:
    """A line without a label: goes on with a message, or opens one in the older table."""
    old = _SYSTEM.match(right)
    if old is not None and group:
        current = Trouble(group, entity, old["system"], old["word"], (old["why"] or "").strip(), [line])
        if old["word"] != "Healthy":
            health.troubles.append(current)
    elif current is not None:
        current.message = f"{current.message} {right}".strip()[:2000]
        current.lines.append(line)
    return current


def _word(text: str) -> str:
    lowered = text.strip().casefold()
    return next((word for word in WORDS if word.casefold() == lowered), text.strip()[:40])


def parse_json(text: str) -> Health:
    """Read the document. One that breaks off gives a report that is not complete."""
    start = text.find("{")
    try:
        document, _ = json.JSONDecoder().raw_decode(text, max(start, 0))
    except (ValueError, RecursionError):
        # The last key of the document is its header, so what was read of the body may lack entities.
        found = re.search(r'"Overall Health"\s{0,8}:\s{0,8}\{\s{0,40}"value"\s{0,8}:\s{0,8}"([A-Za-z ]{1,40})"', text)
        return Health(_word(found[1]) if found else None, complete=False)
    body = _mapping(_mapping(document).get("body"))
    overall = _mapping(body.get("Overall Health")).get("value")
    health = Health(_word(str(overall)) if overall else None)
    for group, node in body.items():
        if group == "Overall Health":
            continue
        for name, entity in _mapping(_mapping(node).get("children")).items():
            number = int(name) if name.isdecimal() and len(name) < 6 else None
            if number is not None and len(health.entities) < _MAX_ENTITIES:
                health.entities[group, number] = _word(str(_mapping(entity).get("value", "")))
            health.troubles += _systems(group, number, _mapping(entity))
    health.complete = health.overall is not None
    return health


def _systems(group: str, number: int | None, entity: Mapping[str, Any]) -> Iterator[Trouble]:
    errors = _mapping(_mapping(entity.get("children")).get("Errors"))
    for system, node in list(_mapping(errors.get("children")).items())[:64]:
        node = _mapping(node)
        parts = list(_texts(node.get("overflow"), 0)) + [
            text for text in _texts(node.get("children"), 0) if text not in WORDS
        ]
        yield Trouble(group, number, str(system)[:60], _word(str(node.get("value", ""))), " ".join(parts)[:2000])


def _texts(node: Any, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(node, str):
        yield node.strip()
    elif isinstance(node, list):
        for item in node:
            yield from _texts(item, depth + 1)
    elif isinstance(node, dict):
        for item in node.values():
            yield from _texts(item, depth + 1)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
