"""`dcgmi diag -j` of release 2 and 3 (`DCGM GPU Diagnostic`, GPU numbers) and 4 (`DCGM Diagnostic`, entities)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from muster.read.diagnostics.detect import JSON_ROOTS
from muster.read.diagnostics.diag import Diag, Message, Status, Test, status_of
from muster.read.diagnostics.error_codes import code_of

_MAX_TESTS = 1000
_NAME = re.compile(r'"name"\s{0,8}:\s{0,8}"([^"]{1,80})"')


def parse_json(text: str) -> Diag:
    """Read the document. One that breaks off gives a run that is not complete, with the names of its tests."""
    try:
        document, _ = json.JSONDecoder().raw_decode(text, text.find("{"))
    except (ValueError, RecursionError):
        names = dict.fromkeys(_NAME.findall(text)[:_MAX_TESTS])
        return Diag(tuple(Test(name, "") for name in names), complete=False)
    if not isinstance(document, dict):
        return Diag((), complete=False)
    root = next((document[key] for key in JSON_ROOTS if isinstance(document.get(key), dict)), document)
    metadata = _mapping(document.get("metadata"))
    facts = {**document, **root, **metadata}
    tests = tuple(_test(category, item) for category, item in _tests(root))
    return Diag(
        tests=tests,
        complete=bool(tests),
        dcgm_version=_text(facts.get("version")),
        driver_version=_text(facts.get("Driver Version Detected") or facts.get("driver_version_detected")),
        device_ids=_device_ids(document, root),
        error=_text(root.get("runtime_error") or document.get("runtime_error")) or "",
    )


def _tests(root: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    categories = _list(root.get("test_categories")) or [root]
    count = 0
    for category in categories:
        for item in _list(_mapping(category).get("tests")):
            if isinstance(item, dict) and count < _MAX_TESTS:
                count += 1
                yield str(category.get("category", ""))[:60], item


def _test(category: str, item: Mapping[str, Any]) -> Test:
    test = Test(str(item.get("name", ""))[:80], category)
    summary = _mapping(item.get("test_summary"))
    for result in (*_list(item.get("results")), *([summary] if summary else [])):
        if not isinstance(result, dict):
            continue
        gpus = _gpus(result)
        status = status_of(str(result.get("status", "")))
        if status is not None:
            test.add(status, gpus)
        warnings = result.get("warnings")
        for warning in [warnings] if isinstance(warnings, str) and warnings.strip() else _list(warnings):
            test.messages.append(_message(warning, gpus))
    if test.status is None:
        test.status = Status.SKIP
    return test


def _gpus(result: Mapping[str, Any]) -> tuple[int, ...]:
    if str(result.get("entity_group", "GPU")) != "GPU":
        return ()
    for key in ("gpu_ids", "gpu_id", "entity_id"):
        if key in result:
            return tuple(int(number) for number in re.findall(r"\d{1,4}", str(result[key]))[:1024])
    return ()


def _message(warning: Any, gpus: tuple[int, ...]) -> Message:
    number = None
    if isinstance(warning, dict):
        found = warning.get("error_id")
        number = found if isinstance(found, int) and not isinstance(found, bool) else None
        warning = warning.get("warning", "")
    text = " ".join(str(warning).split())[:2000]
    return Message(text, gpus[0] if len(gpus) == 1 else None, code_of(number, text))


def _device_ids(document: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[str, ...]:
    listed = root.get("GPU Device IDs") or root.get("GPU Device IDs Detected")
    if isinstance(listed, str):
        listed = listed.split(",")
    if isinstance(listed, list):
        return tuple(str(item).strip()[:40] for item in listed[:1024])
    found = []
    for group in _list(document.get("entity_groups")):
        if _mapping(group).get("entity_group") == "GPU":
            found += [str(_mapping(item).get("device_id", ""))[:40] for item in _list(group.get("entities"))[:1024]]
    return tuple(found)


def _text(value: Any) -> str | None:
    return str(value)[:200] if value else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
