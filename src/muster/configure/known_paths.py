"""Which value paths a chart knows, as far as they were read: names of keys only, from `data/value_paths/`.

Helm takes any value and ignores what no template asks for, so a misspelt path changes nothing and nobody is told.
Read on demand, one file for each component, because most verbs never ask.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import Any, Final

import msgspec

from muster import yamlio
from muster.configure.catalogue import Entry, data_folder
from muster.configure.values import Path, parse_path, path_text
from muster.errors import BadInputError

_INDEX: Final = re.compile(r"\[\d+\]")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,60}", re.ASCII)
_CLOSE: Final = 0.6
"""How alike two names must be for a suggestion: difflib's ratio, 1 is equal."""


class _File(Entry, frozen=True, kw_only=True):
    """`data/value_paths/<component>.yaml`."""

    source: str
    """Repository, file and tag or commit."""
    version: str
    """Of the chart that was read; it may differ from the pin, see `note`."""
    date: str
    """Of that version, year and month."""
    note: str = ""
    open: tuple[str, ...] = ()
    """Anything may stand below these: maps that the chart passes on, and charts inside the chart."""
    paths: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    """Paths that only our manifests of the component read; the chart ignores them."""


class KnownPaths:
    """The value paths of one component."""

    def __init__(self, file: _File) -> None:
        self.source, self.version, self.date, self.note = file.source, file.version, file.date, file.note
        # A tree: an empty map is a value without keys of its own, None is open.
        self._tree: dict[str, Any] = {}
        for text in (*file.paths, *file.manifests):
            _plant(self._tree, parse_path(text), {})
        for text in file.open:
            _plant(self._tree, parse_path(text), None)

    def unknown(self, path: Path) -> str | None:
        """None when the chart knows `path` or something below it; else a path like it, or "" when none is.

        Indices of lists are passed over: what stands in a list is not recorded.
        """
        node = self._tree
        for at, key in enumerate(path):
            if _INDEX.fullmatch(key):
                return None
            if key not in node:
                return self._suggestion(path, at, node)
            if node[key] is None:
                return None
            node = node[key]
        return None

    def paths(self) -> tuple[Path, ...]:
        """Every recorded path, open ones included, sorted."""
        found: list[Path] = []

        def visit(node: dict[str, Any], at: Path) -> None:
            for key in sorted(node):
                if node[key]:
                    visit(node[key], (*at, key))
                else:
                    found.append((*at, key))

        visit(self._tree, ())
        return tuple(found)

    def _suggestion(self, path: Path, at: int, node: dict[str, Any]) -> str:
        rest = path[at + 1 :]
        near = difflib.get_close_matches(path[at], sorted(node), n=1, cutoff=_CLOSE)
        if near:
            candidate = (*path[:at], near[0], *rest)
            return path_text(candidate if self.unknown(candidate) is None else candidate[: at + 1])
        # The key may be right and its place wrong: `version` for `driver.version`.
        ends = [known for known in self.paths() if known[-len(path) :] == path]
        return path_text(ends[0]) if len(ends) == 1 else ""


def _plant(tree: dict[str, Any], path: Path, leaf: dict[str, Any] | None) -> None:
    node = tree
    for key in path[:-1]:
        below = node.setdefault(key, {})
        if below is None:
            return
        node = below
    if leaf is None:
        node[path[-1]] = None
    else:
        node.setdefault(path[-1], leaf)


@cache
def known_paths(component: str) -> KnownPaths | None:
    """The recorded paths of `component`, the catalogue's name; None when they were not recorded.

    Raises BadInputError when the file is malformed.
    """
    if not _NAME.fullmatch(component):
        return None
    path = data_folder() / "value_paths" / f"{component}.yaml"
    if not path.is_file():
        return None
    try:
        return KnownPaths(msgspec.convert(yamlio.load(path), _File))
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path.name} of the recorded value paths is malformed: {error}.") from error
