"""Tables of `kubectl get events`, `get nodes` and `get pods`. Columns are where the header has them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.read.fabric_ports.lines import Line
from muster.read.kubernetes.describe import seconds_of
from muster.read.kubernetes.objects import Event, Node, Objects, Pod

_COLUMN = re.compile(r"[A-Z][A-Z-]{0,20}(?: [A-Z][A-Z-]{1,20}){0,2}")
_EVENTS = {"TYPE", "REASON", "MESSAGE"}
_NODES = {"NAME", "STATUS", "ROLES", "AGE"}
_PODS = {"NAME", "READY", "STATUS", "RESTARTS"}


def header_of(text: str) -> dict[str, tuple[int, int]] | None:
    """Columns of a header line with where they begin and end; None for another line."""
    if not text[:1].isupper() or text.upper() != text:
        return None
    found = list(_COLUMN.finditer(text))
    names = {match[0] for match in found}
    if not any(wanted <= names for wanted in (_EVENTS, _NODES, _PODS)):
        return None
    starts = [match.start() for match in found]
    ends = [*starts[1:], 100_000]
    return {match[0]: span for match, span in zip(found, zip(starts, ends, strict=True), strict=True)}


def parse(lines: Sequence[Line]) -> Objects:
    """All rows below such headers."""
    found = Objects()
    columns: dict[str, tuple[int, int]] | None = None
    for line in lines:
        text = line.text.expandtabs(8)
        if (header := header_of(text)) is not None:
            columns = header
        elif not text.strip() or line.command:
            columns = None
        elif columns is not None and not text.startswith(" "):
            _row(line, _cells(text, columns), found)
    return found


def _cells(text: str, columns: dict[str, tuple[int, int]]) -> dict[str, str]:
    """By position; by runs of spaces where a row is not aligned with its header."""
    cells = {name: text[start:end].strip() for name, (start, end) in columns.items()}
    fits = all(start == 0 or start >= len(text) or text[start - 1] == " " for start, _ in columns.values())
    if fits:
        return cells
    parts = re.split(r"\s{2,}", text.strip(), maxsplit=len(columns) - 1)
    return dict(zip(columns, parts, strict=False))


def _row(line: Line, cells: dict[str, str], found: Objects) -> None:
    if "REASON" in cells and "MESSAGE" in cells:
        found.events.append(
            Event(
                cells.get("TYPE", ""),
                cells["REASON"],
                cells["MESSAGE"],
                cells.get("OBJECT", "").lower(),
                cells.get("NAMESPACE", ""),
                cells.get("SOURCE", "") or cells.get("FROM", ""),
                int(cells["COUNT"]) if cells.get("COUNT", "").isdigit() else 1,
                line.number,
                seconds_of(cells.get("LAST SEEN", "").partition(" ")[0]),
            )
        )
    elif "ROLES" in cells:
        node = Node(cells.get("NAME") or None, line.number, status_word=cells.get("STATUS", ""))
        node.unschedulable = "SchedulingDisabled" in node.status_word
        node.lines["Conditions"] = line.number
        found.nodes.append(node)
    elif "READY" in cells:
        status = cells.get("STATUS", "")
        pod = Pod(cells.get("NAME") or None, cells.get("NAMESPACE") or None, line.number, phase=status)
        pod.node = cells.get("NODE") if cells.get("NODE") not in ("", "<none>") else None
        pod.deleting = status == "Terminating"
        if status not in (
            "Running",
            "Pending",
            "Succeeded",
            "Failed",
            "Completed",
            "Terminating",
            "ContainerCreating",
        ):
            pod.reason = status.removeprefix("Init:")
        pod.lines["Status"] = line.number
        found.pods.append(pod)
