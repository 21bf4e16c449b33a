"""Reads what metrics expose, with the parser of the usual client library."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from muster.telemetry.metrics import Metrics

Key = tuple[str, tuple[tuple[str, str], ...]]


def scrape(metrics: Metrics) -> dict[Key, float]:
    """Every sample: (name, sorted labels) -> value."""
    return parsed(metrics.exposition())


def parsed(body: bytes) -> dict[Key, float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(found: dict[Key, float], name: str, **labels: str) -> float:
    """The value of one sample; 0 when there is none. A label that is a Python keyword is written with `_`."""
    wanted = tuple(sorted((label.rstrip("_"), text) for label, text in labels.items()))
    return found.get((name, wanted), 0.0)


def total(found: dict[Key, float], name: str) -> float:
    """Sum over all labels."""
    return sum(count for (sample, _), count in found.items() if sample == name)
