"""`kubectl describe node` and `kubectl describe pod`, whole or a section of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from muster.read.fabric_ports.lines import Line
from muster.read.kubernetes.objects import Condition, Container, Event, Node, Objects, Pod, Taint, is_gpu, whole
from muster.read.moment import MONTHS, calendar

_DATE = (
    r"(?:[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} [+-]\d{4}"
    r"|<unset>|<unknown>|\d{4}-\d{2}-\d{2}T\S{1,40})"
)
_CONDITION = re.compile(
    rf"\s{{0,8}}([A-Za-z][A-Za-z0-9./_-]{{1,80}})\s{{1,80}}(True|False|Unknown)\s{{1,80}}({_DATE})"
    rf"\s{{1,80}}({_DATE})(?:\s{{1,80}}(\S.{{0,2000}}))?$"
)
_TOP = re.compile(r"([A-Z][A-Za-z -]{1,40}):(?:\s{1,40}(.{0,1000}))?$")
_ITEM = re.compile(r"(\s{1,40})([A-Za-z0-9][A-Za-z0-9 ._/()-]{0,80}?):(?:\s{1,60}(.{0,1000}))?$")
_RESOURCE = re.compile(r"\s{1,8}([A-Za-z0-9][A-Za-z0-9._/-]{0,100}):?\s{1,60}(\d\S{0,30})(?:\s.{0,100})?$")
_EVENT = re.compile(r"\s{1,8}(Normal|Warning)\s{1,40}([A-Z][A-Za-z0-9]{1,60})\s{1,40}(.{1,2000})$")
_TAINT = re.compile(r"([A-Za-z0-9./_-]{1,200})(?:=([^:\s]{0,100}))?:(NoSchedule|NoExecute|PreferNoSchedule)")
_DURATION = re.compile(r"(\d{1,9})(d|h|m(?!s)|s|y)")
_UNITS = {"y": 365 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}
_COUNTED = re.compile(r"\(x(\d{1,9}) over")
_POD_FIELDS = ("Namespace", "Priority", "Node", "Start Time", "Status", "Containers", "Init Containers", "QoS Class")


def seconds_of(text: str) -> float | None:
    """`3h12m`, `47d`, `2m10s` in seconds; None for other text."""
    parts = _DURATION.findall(text)
    return float(sum(int(number) * _UNITS[unit] for number, unit in parts)) if parts else None


def iso(text: str) -> str | None:
    """`Wed, 20 Aug 2025 18:44:57 +0000` as `2025-08-20T18:44:57Z`; None when it is no time."""
    match = re.match(r"[A-Z][a-z]{2}, (\d{2}) ([A-Z][a-z]{2}) (\d{4}) (\d{2}:\d{2}:\d{2}) ([+-]\d{4})", text)
    if match is None:
        return text if re.match(r"\d{4}-\d{2}-\d{2}T", text) else None
    if match[2] not in MONTHS:
        return None
    moment = calendar(int(match[3]), MONTHS[match[2]], int(match[1]), match[4], None, match[5])
    return moment.text if moment is not None else None


def condition_of(line: Line) -> Condition | None:
    """A row of a node's condition table, however its columns are aligned."""
    match = _CONDITION.match(line.text.rstrip())
    if match is None:
        return None
    reason, message = _reason(match[5] or "")
    return Condition(match[1], match[2], reason, message, iso(match[3]), iso(match[4]), line.number)


def _reason(rest: str) -> tuple[str, str]:
    if rest.startswith("{"):
        try:
            _, end = json.JSONDecoder().raw_decode(rest)
            return rest[:end], rest[end:].strip()
        except (ValueError, RecursionError):
            pass
    parts = re.split(r"\s{2,}|\t", rest, maxsplit=1)
    if len(parts) == 1:
        parts = rest.split(" ", 1)
    return parts[0], parts[1].strip() if len(parts) > 1 else ""


def parse(lines: Sequence[Line]) -> Objects:
    """All nodes and pods that the text describes."""
    reader = _Reader()
    for line in lines:
        reader.line(line)
    return reader.done()


class _Reader:
    def __init__(self) -> None:
        self._found = Objects()
        self._node = Node()
        self._pod = Pod()
        self._seen_pod = False
        self._section = ""
        self._container: dict[str, str] = {}
        self._container_line = 0
        self._in_state = ""
        self._named = False
        self._started = False

    def line(self, line: Line) -> None:
        text = line.text
        if (condition := condition_of(line)) is not None:
            self._node.conditions.append(condition)
            self._started = True
        elif match := _TOP.match(text):
            self._top(line, match[1], (match[2] or "").strip())
        elif self._section in ("Capacity", "Allocatable", "Allocated resources"):
            self._resource(text)
        elif self._section == "Events" and (match := _EVENT.match(text)):
            self._event(line, match)
        elif self._section == "Taints" and (match := _TAINT.search(text)):
            self._node.taints.append(Taint(match[1], match[2] or "", match[3]))
        elif self._section == "Labels":
            self._label(text.strip())
        elif self._section == "System Info" and (match := _ITEM.match(text)) and match[2] == "Boot ID":
            self._node.boot_id = (match[3] or "").strip() or None
        elif self._section in ("Containers", "Init Containers"):
            self._in_container(line)

    def _top(self, line: Line, name: str, value: str) -> None:
        if name == "Name":
            self._flush()
            self._node, self._pod = Node(value or None, line.number), Pod(value or None, line=line.number)
            self._seen_pod, self._named, self._started = False, True, True
        self._end_container()
        self._section = name
        self._node.lines.setdefault(name, line.number)
        self._pod.lines.setdefault(name, line.number)
        self._started = self._started or name in ("Capacity", "Allocatable", "Taints", "Conditions", "Events")
        if name in _POD_FIELDS:
            self._seen_pod = True
        match name:
            case "Namespace":
                self._pod.namespace = value or None
            case "Node":
                self._pod.node = value.partition("/")[0] if value not in ("", "<none>") else None
            case "Status":
                self._pod.phase = value.split(" ")[0]
                self._pod.deleting = value.startswith("Terminating")
                self._pod.deleting_for_s = seconds_of(value.partition("lasts")[2])
            case "Reason":
                self._pod.reason = value
            case "Message":
                self._pod.message = value
            case "Unschedulable":
                self._node.unschedulable = value.lower() == "true"
            case "Taints":
                if match := _TAINT.search(value):
                    self._node.taints.append(Taint(match[1], match[2] or "", match[3]))
            case "Labels":
                self._label(value)
            case _:
                pass

    def _label(self, text: str) -> None:
        name, sign, value = text.partition("=")
        if sign and len(self._node.labels) < 1000:
            self._node.labels[name] = value

    def _resource(self, text: str) -> None:
        match = _RESOURCE.match(text)
        if match is None:
            return
        target = {"Capacity": self._node.capacity, "Allocatable": self._node.allocatable}
        target.get(self._section, self._node.allocated)[match[1]] = match[2]

    def _event(self, line: Line, match: re.Match[str]) -> None:
        rest = re.split(r"\s{2,}|\t", match[3].strip())
        counted = _COUNTED.search(match[3])
        source = rest[1] if len(rest) > 2 else ""
        message = "  ".join(rest[2:]) if len(rest) > 2 else rest[-1]
        event = Event(
            match[1], match[2], message, source=source, count=int(counted[1]) if counted else 1, line=line.number
        )
        self._node.events.append(event)
        self._pod.events.append(event)

    def _in_container(self, line: Line) -> None:
        match = _ITEM.match(line.text)
        if match is None:
            return
        depth, name, value = len(match[1].expandtabs(8)), match[2].strip(), (match[3] or "").strip()
        if depth <= 2 and not value:
            self._end_container()
            self._container, self._container_line = {"name": name}, line.number
        elif name in ("State", "Last State"):
            self._in_state = "" if name == "State" else "last "
            self._container[f"{self._in_state}state"] = value
        elif name in ("Reason", "Exit Code", "Message"):
            self._container.setdefault(f"{self._in_state}{name.lower()}", value)
        elif name == "Restart Count":
            self._container["restarts"] = value
        elif is_gpu(name) and (count := whole(value)) is not None:
            self._container["gpus"] = str(max(count, int(self._container.get("gpus", "0"))))

    def _end_container(self) -> None:
        fields, self._container, self._in_state = self._container, {}, ""
        if not fields or len(self._pod.containers) >= 1000:
            return
        self._pod.gpus += int(fields.get("gpus", "0"))
        self._pod.containers.append(
            Container(
                fields.get("name", "container"),
                fields.get("state", ""),
                fields.get("reason", ""),
                whole(fields.get("exit code", "")),
                fields.get("last reason", ""),
                whole(fields.get("last exit code", "")),
                whole(fields.get("restarts", "")) or 0,
                fields.get("message", "") or fields.get("last message", ""),
                self._container_line,
            )
        )

    def _flush(self) -> None:
        self._end_container()
        if not self._started or len(self._found.nodes) + len(self._found.pods) >= 20_000:
            return
        if self._seen_pod:
            self._found.pods.append(self._pod)
        elif not self._named and not (self._node.conditions or self._node.capacity or self._node.taints):
            self._found.events += self._node.events
        else:
            self._found.nodes.append(self._node)

    def done(self) -> Objects:
        self._flush()
        return self._found
