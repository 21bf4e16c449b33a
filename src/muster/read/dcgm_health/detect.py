"""How sure this package is of a sample, and which tool wrote a text."""

from __future__ import annotations

import re
from enum import StrEnum

from muster.read.dcgm_health import conditions

KIND = "dcgm-health"


class Shape(StrEnum):
    HEALTH = "health"
    HEALTH_JSON = "health-json"
    MONITOR = "monitor"
    DISCOVERY = "discovery"
    SCRAPE = "scrape"
    MESSAGE = "message"
    CONDITION = "condition"


_HEALTH = re.compile(r"Health Monitor Report|\|\s{1,4}Overall Health|Overall Health:")
_HEALTH_JSON = re.compile(r'"Overall Health"|"Health Monitor Report"')
_MONITOR = re.compile(r"^\s{0,8}#\s{0,4}Entity\s{1,40}\S", re.MULTILINE)
_DISCOVERY = re.compile(
    r"^\s{0,8}\d{1,4} GPUs? found\.|^\s{0,8}\d{1,4} NvSwitch(?:es)? found\.", re.MULTILINE | re.IGNORECASE
)
_SCRAPE = re.compile(r"^\s{0,4}(?:# (?:HELP|TYPE) )?DCGM_(?:FI|EXP)_[A-Z0-9_]{2,80}(?:\{| )", re.MULTILINE)
MESSAGES = (
    "Unable to check health watches",
    "Health watches not enabled",
    "Unable to connect to host engine",
    "unable to establish a connection to the specified host",
)


def score(sample: bytes) -> float:
    """1 for an output of `dcgmi health`, `dmon`, `discovery` or of dcgm-exporter."""
    shape = shape_of(sample.decode("utf-8", "replace"))
    # A node condition may stand in an object or an event, which other readers know better.
    return 0.0 if shape is None else 0.5 if shape is Shape.CONDITION else 1.0


def shape_of(text: str) -> Shape | None:
    head = text[:65536]
    if ("{" in head and _HEALTH_JSON.search(head) and '"body"' in head) or _opens_json(head):
        return Shape.HEALTH_JSON
    if _SCRAPE.search(head):
        return Shape.SCRAPE
    if _HEALTH.search(head) and "|" in head:
        return Shape.HEALTH
    if _MONITOR.search(head):
        return Shape.MONITOR
    if _DISCOVERY.search(head) or "GPU ID | Device Information" in head:
        return Shape.DISCOVERY
    if any(message in head for message in MESSAGES):
        return Shape.MESSAGE
    return Shape.CONDITION if conditions.SIGN.search(head) else None


def _opens_json(head: str) -> bool:
    """A report that breaks off early still shows its first keys."""
    start = head.lstrip()[:400]
    return start.startswith("{") and '"body"' in start and ('"GPU"' in start or "Overall Health" in start)
