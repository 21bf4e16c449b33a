"""Objects as YAML or JSON: `kubectl get node|pod|event|resourceslice -o yaml|json`, single or as a list."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from muster.errors import BadInputError
from muster.read.kubernetes.objects import (
    Condition,
    Container,
    Device,
    Event,
    Node,
    Objects,
    Pod,
    Taint,
    is_gpu,
    whole,
)

_TRIES = 40
"""Lines that are taken off the end of a YAML document until the rest can be read."""


def parse(text: str, name: str) -> Objects:
    """All objects of the text that say something. A text that is cut is read as far as it goes, and marked so."""
    start = text.lstrip()[:1]
    documents, cut = _json(text, start) if start in ("{", "[") else _yaml(textwrap.dedent(text), name)
    found = Objects(cut=cut)
    for document in documents:
        for item in _items(document):
            _add(item, found)
    return found


def _json(text: str, opening: str) -> tuple[list[Any], bool]:
    decoder = json.JSONDecoder()
    documents: list[Any] = []
    at = text.find(opening)
    while 0 <= at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            repaired = _repaired(text[at:])
            return documents + ([repaired] if repaired is not None else []), True
        documents.append(document)
        at = text.find(opening, at)
    return documents, False


def _repaired(text: str) -> Any:
    """The document up to its last whole value, with its brackets closed; None when that gives nothing."""
    stack: list[str] = []
    good: tuple[int, str] | None = None
    quoted = False
    for at, character in enumerate(text):
        if quoted:
            quoted = character != '"' or not _even(text, at)
        elif character == '"':
            quoted = True
        elif character in "{[":
            stack.append("}" if character == "{" else "]")
        elif character in "}]" and stack:
            stack.pop()
            good = (at + 1, "".join(reversed(stack)))
        elif character == ",":
            good = (at, "".join(reversed(stack)))
        if len(stack) > 200:
            return None
    if good is None:
        return None
    try:
        return json.loads(text[: good[0]] + good[1])
    except (ValueError, RecursionError):
        return None


def _even(text: str, at: int) -> bool:
    """An even number of backslashes stands before the quote: it ends the string."""
    count = 0
    while at - 1 - count >= 0 and text[at - 1 - count] == "\\":
        count += 1
    return count % 2 == 0


def _yaml(text: str, name: str) -> tuple[list[Any], bool]:
    from muster import yamlio

    documents: list[Any] = []
    cut = False
    for part in _split(text):
        lines = part.split("\n")
        tries = _TRIES if len(part) < 200_000 else 3
        for attempt in range(min(tries, len(lines))):
            try:
                documents.append(yamlio.loads("\n".join(lines[: len(lines) - attempt]), name))
                cut = cut or attempt > 0
                break
            except BadInputError:
                continue
        else:
            cut = True
    return documents, cut


def _split(text: str) -> list[str]:
    parts: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.rstrip() == "---":
            parts.append([])
        else:
            parts[-1].append(line)
    return ["\n".join(part) for part in parts if any(line.strip() for line in part)]


def _items(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, list):
        rows = [entry for entry in document[:20_000] if isinstance(entry, dict)]
        if all("type" in row and "status" in row for row in rows):
            yield {"conditions": rows}
        else:
            for row in rows:
                yield from _items(row)
    elif isinstance(document, dict):
        items = document.get("items")
        if isinstance(items, list):
            for item in items[:20_000]:
                yield from _items(item)
        else:
            yield document


def _add(item: dict[str, Any], found: Objects) -> None:
    kind = item.get("kind")
    status, spec = _map(item.get("status")), _map(item.get("spec"))
    if kind == "Node" or (kind is None and "conditions" in status and "nodeInfo" in status):
        found.nodes.append(_node(item))
    elif kind == "Pod" or (kind is None and "containers" in spec):
        found.pods.append(_pod(item))
    elif kind == "Event":
        found.events.append(_event(item))
    elif kind == "ResourceSlice":
        found.devices += _devices(item)
    elif kind is None and (isinstance(item.get("conditions"), list) or "capacity" in item or "allocatable" in item):
        found.nodes.append(_node({"status": item}))
    elif kind is None and ("capacity" in status or "allocatable" in status or "conditions" in status):
        found.nodes.append(_node(item))


def _node(item: dict[str, Any]) -> Node:
    meta, spec, status = _map(item.get("metadata")), _map(item.get("spec")), _map(item.get("status"))
    return Node(
        name=_text(meta.get("name")) or None,
        conditions=[_condition(entry) for entry in _maps(status.get("conditions"))],
        taints=[_taint(entry) for entry in _maps(spec.get("taints"))],
        unschedulable=bool(spec.get("unschedulable", False)) if spec else None,
        capacity=_texts(status.get("capacity")),
        allocatable=_texts(status.get("allocatable")),
        labels=_texts(meta.get("labels")),
        boot_id=_text(_map(status.get("nodeInfo")).get("bootID")) or None,
    )


def _condition(entry: dict[str, Any]) -> Condition:
    return Condition(
        _text(entry.get("type")),
        _text(entry.get("status")).capitalize(),
        _text(entry.get("reason")),
        _text(entry.get("message")),
        _time(entry.get("lastHeartbeatTime")),
        _time(entry.get("lastTransitionTime")),
    )


def _taint(entry: dict[str, Any]) -> Taint:
    return Taint(_text(entry.get("key")), _text(entry.get("value")), _text(entry.get("effect")))


def _pod(item: dict[str, Any]) -> Pod:
    meta, spec, status = _map(item.get("metadata")), _map(item.get("spec")), _map(item.get("status"))
    containers = _maps(spec.get("containers"))
    statuses = _maps(status.get("initContainerStatuses")) + _maps(status.get("containerStatuses"))
    pod = Pod(
        name=_text(meta.get("name")) or None,
        namespace=_text(meta.get("namespace")) or None,
        node=_text(spec.get("nodeName")) or None,
        phase=_text(status.get("phase")),
        reason=_text(status.get("reason")),
        message=_text(status.get("message")),
        deleting=bool(meta.get("deletionTimestamp")),
        finalizers=tuple(_text(name) for name in meta.get("finalizers") or () if isinstance(name, str)),
        gpus=sum(_gpus(container) for container in containers),
        containers=[_container(entry) for entry in statuses],
    )
    for entry in _maps(status.get("conditions")):
        if entry.get("type") == "PodScheduled" and entry.get("status") == "False":
            reason = "FailedScheduling" if entry.get("reason") == "Unschedulable" else _text(entry.get("reason"))
            pod.events.append(Event("Warning", reason, _text(entry.get("message"))))
    return pod


def _gpus(container: dict[str, Any]) -> int:
    resources = _map(container.get("resources"))
    wanted = {**_texts(resources.get("requests")), **_texts(resources.get("limits"))}
    return sum(whole(count) or 0 for name, count in wanted.items() if is_gpu(name))


def _container(entry: dict[str, Any]) -> Container:
    states = {side: _map(entry.get(side)) for side in ("state", "lastState")}
    (word, now), (_, last) = (next(iter(state.items()), ("", {})) for state in states.values())
    now, last = _map(now), _map(last)
    code, last_code = now.get("exitCode"), last.get("exitCode")
    restarts = entry.get("restartCount")
    return Container(
        _text(entry.get("name")),
        word.capitalize(),
        _text(now.get("reason")),
        code if isinstance(code, int) else None,
        _text(last.get("reason")),
        last_code if isinstance(last_code, int) else None,
        restarts if isinstance(restarts, int) else 0,
        _text(now.get("message")) or _text(last.get("message")),
    )


def _event(item: dict[str, Any]) -> Event:
    about = _map(item.get("involvedObject")) or _map(item.get("regarding"))
    count = item.get("count") or _map(item.get("series")).get("count")
    return Event(
        _text(item.get("type")),
        _text(item.get("reason")),
        _text(item.get("message")) or _text(item.get("note")),
        f"{_text(about.get('kind')).lower()}/{_text(about.get('name'))}" if about else "",
        _text(about.get("namespace")),
        _text(_map(item.get("source")).get("component")) or _text(item.get("reportingController")),
        count if isinstance(count, int) else 1,
    )


def _devices(item: dict[str, Any]) -> list[Device]:
    spec = _map(item.get("spec"))
    found = []
    for entry in _maps(spec.get("devices"))[:1000]:
        body = {**entry, **_map(entry.get("basic"))}
        attributes = _map(body.get("attributes"))
        uuid = next((_map(value).get("string") for key, value in attributes.items() if key.endswith("uuid")), None)
        found.append(
            Device(
                _text(entry.get("name")),
                _text(spec.get("nodeName")) or None,
                _text(spec.get("driver")),
                _text(uuid) or None,
                tuple(_taint(taint) for taint in _maps(body.get("taints"))),
            )
        )
    return found


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _maps(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        return ""
    return str(value)[:4000]


def _texts(value: Any) -> dict[str, str]:
    return {str(key): _text(item) for key, item in _map(value).items()}


def _time(value: Any) -> str | None:
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).replace("+00:00", "Z")
    return _text(value) or None
