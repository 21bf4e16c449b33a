"""PCI addresses in every spelling that tools print, normalised to `dddd:bb:dd.f` in lower case."""

from __future__ import annotations

import re

PATTERN = r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:[.:][0-7](?![0-9A-Fa-f]))?"
"""Regular expression (without a group) that matches one address in a line."""

_ADDRESS = re.compile(
    r"(?:PCI:)?\[?(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[01][0-9a-f])(?:[.:](?P<fn>[0-7]))?\]?",
    re.IGNORECASE,
)


def normalise(text: str) -> str | None:
    """`PCI:0000:9B:00`, `00000000:9b:00.0`, `[9b:00.0]` -> `0000:9b:00.0`; None when `text` is no PCI address.

    A missing domain is 0000 and a missing function 0: lspci and the NVIDIA driver leave them out when zero.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{match['bus']}:{match['device']}.{match['fn'] or '0'}".lower()
