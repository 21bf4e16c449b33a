"""The subset of JSONPath that printer columns use: fields, indexes, wildcards and simple filters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Step = Callable[[list[Any]], list[Any]]

_TOKEN = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\])+)
      | \[(?P<index>-?\d+)\]
      | \[(?P<star>\*)\]
      | \[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]
      | \[\?\(\s*@\.(?P<left>(?:\\.|[^=!<>\s\\])+)\s*
          (?:(?P<op>==|!=)\s*(?P<right>"[^"]*"|'[^']*'|[^\s)]+))?\s*\)\]""",
    re.VERBOSE,
)


class JsonPathError(ValueError):
    """The path uses something outside the subset."""


@lru_cache(maxsize=1024)
def compile_path(path: str) -> Callable[[Any], list[Any]]:
    """A function from a JSON value to all values at `path`, such as `.status.conditions[?(@.type=="A")].status`.

    Raises JsonPathError.
    """
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise JsonPathError(f"{path!r} uses more of JSONPath than fields, indexes, [*] and simple filters")
        steps.append(_step(found))
        at = found.end()

    def find(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = step(values)
        return values

    return find


def _step(found: re.Match[str]) -> Step:
    if found["name"] is not None:
        return _field("*" if found["name"] == "*" else re.sub(r"\\(.)", r"\1", found["name"]))
    if found["key"] is not None:
        return _field(found["key"])
    if found["star"] is not None:
        return _field("*")
    if found["index"] is not None:
        return _item(int(found["index"]))
    return _filter(re.sub(r"\\(.)", r"\1", found["left"]), found["op"], found["right"])


def _field(name: str) -> Step:
    def step(values: list[Any]) -> list[Any]:
        if name == "*":
            lists = [v if isinstance(v, list) else list(v.values()) for v in values if isinstance(v, list | dict)]
            return [item for items in lists for item in items]
        return [value[name] for value in values if isinstance(value, dict) and name in value]

    return step


def _item(index: int) -> Step:
    def step(values: list[Any]) -> list[Any]:
        return [v[index] for v in values if isinstance(v, list) and -len(v) <= index < len(v)]

    return step


def _filter(left: str, operator: str | None, right: str | None) -> Step:
    wanted: Any = None
    if right is not None:
        try:
            wanted = right[1:-1] if right[0] in "'\"" else json.loads(right)
        except ValueError:
            raise JsonPathError(f"{right!r} is not a value to compare with") from None
    fields = left.split(".")

    def keeps(item: Any) -> bool:
        for field in fields:
            if not isinstance(item, dict) or field not in item:
                return False
            item = item[field]
        return operator is None or (bool(item == wanted) is (operator == "=="))

    def step(values: list[Any]) -> list[Any]:
        lists = [value if isinstance(value, list) else [value] for value in values]
        return [item for items in lists for item in items if keeps(item)]

    return step
