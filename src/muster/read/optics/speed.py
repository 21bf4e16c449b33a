"""Speed and width of a link against what is expected, and against what its port and cable can do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster.read.fabric_ports.finding import Finding
from muster.read.optics.module import Link, at, rate_gbps
from muster.read.report import Result


def findings(link: Link, of: str, expected_gbps: float | None) -> Iterator[Finding]:
    """What is wrong with the speed and the number of lanes."""
    width = width_of(link)
    rate = rate_gbps(link.text.get("speed"), width)
    if rate is None:
        return
    best = _best_common(link, width)
    wanted = expected_gbps if expected_gbps is not None else best
    if wanted is not None and rate < wanted * 0.99:
        told = expected_gbps is not None
        yield Finding(
            of,
            Result.FAIL if told else Result.WARN,
            "rate-below-expected" if told else "speed-below-supported",
            f"The link runs at {rate:g} Gb/s, {'expected are' if told else 'port and cable can do'} {wanted:g} Gb/s.",
            link.entity(),
            "Reseat or swap the cable, then compare the settings of both ends.",
            code="port-rate-low",
            at=at(link, "speed") + at(link, "width"),
            more={"value": rate},
            details={"rate_gbps": rate, "expected_gbps": wanted},
        )

    cable = _cable_width(link)
    if expected_gbps is None and width is not None and cable is not None and width < cable:
        whole = rate / width * cable
        yield Finding(
            of,
            Result.WARN,
            "width-below-cable",
            f"The link runs with {width} of the {cable} lanes of its cable: {rate:g} of {whole:g} Gb/s.",
            link.entity(),
            "Reseat or swap the cable, then compare the settings of both ends.",
            code="port-width-low",
            confidence="low",
            at=at(link, "width"),
            more={"value": width},
            details={"width": width, "cable_width": cable, "rate_gbps": rate, "possible_gbps": whole},
        )


def _cable_width(link: Link) -> int | None:
    """Most lanes that the cable offers to one port (`1x,2x,4x`); a splitter names its half."""
    found = [int(lanes) for lanes in re.findall(r"\b(\d{1,2})x", link.text.get("ib_cable_width", "").lower())]
    return max(found, default=None)


def width_of(link: Link) -> int | None:
    """Lanes that the link runs with; None when the tool does not tell."""
    text = link.text.get("width", "").lower().rstrip("x")
    return int(text) if text.isdigit() and len(text) < 4 else None


def _best_common(link: Link, width: int | None) -> float | None:
    """The best rate that both the port and the cable name."""
    sets = []
    for name in ("enabled_link_speed", "supported_cable_speed"):
        text = link.text.get(name, "")
        words = text[text.find("(") + 1 : text.rfind(")")].split(",") if "(" in text else []
        rates = {rate for word in words if (rate := rate_gbps(word, width)) is not None}
        if not rates:
            return None
        sets.append(rates)
    common = sets[0] & sets[1]
    return max(common) if common else None
