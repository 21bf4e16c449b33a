"""Finds `@pytest.mark.requirement("v2.4/OFM05")` in the tests by reading them; nothing is imported or run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = "requirement"
REAL_API = frozenset({"control_plane", "real_cluster", "real_api"})
FULL = frozenset({"full", "real_program", "real_postgresql", "helm", "helmfile", "oci_registry", "postgresql"})
REAL_FOLDERS = ("tests/real/", "tests/contract/")


class Suite(StrEnum):
    """Where a test runs."""

    QUICK = "quick"
    FULL = "full"
    REAL_API = "real API server"


@dataclass(frozen=True, order=True)
class Proof:
    """A test that says which requirements it proves."""

    file: str
    """From the root of the repository."""
    test: str
    suite: Suite
    ids: tuple[str, ...]


class MarkError(Exception):
    """A mark that cannot be read; says file and line."""


def collect(folder: Path = ROOT / "tests") -> tuple[Proof, ...]:
    """Every marked test, by file and name. Raises MarkError."""
    found: list[Proof] = []
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if f"mark.{MARK}" in text:
            found += proofs(text, path.relative_to(ROOT).as_posix())
    return tuple(sorted(found))


def proofs(text: str, file: str) -> Iterator[Proof]:
    """The marked tests of one file. Raises MarkError."""
    tree = ast.parse(text)
    module = [
        mark
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_pytestmark(node)
        for mark in _each(node.value)
    ]
    words = {name for mark in module if (name := _name(mark))}
    of_module = _ids(module, file)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _ids(
                node.decorator_list, file
            ):
                raise MarkError(f"{file}:{node.lineno}: only a test function can be marked.")
            continue
        ids = tuple(dict.fromkeys((*of_module, *_ids(node.decorator_list, file))))
        own = {name for mark in node.decorator_list if (name := _name(mark))}
        if ids and own & {"skip", "xfail"}:
            raise MarkError(f"{file}:{node.lineno}: a test that does not run proves nothing.")
        if ids:
            parameters = {argument.arg for argument in node.args.args}
            yield Proof(file, node.name, _suite(file, words | own | parameters), ids)


def _suite(file: str, words: set[str]) -> Suite:
    if words & REAL_API or file.startswith(REAL_FOLDERS) or file.endswith("_on_real.py"):
        return Suite.REAL_API
    return Suite.FULL if words & FULL else Suite.QUICK


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)


def _each(value: ast.expr) -> list[ast.expr]:
    return list(value.elts) if isinstance(value, ast.List | ast.Tuple) else [value]


def _name(mark: ast.expr) -> str:
    """`full` for `pytest.mark.full` and `pytest.mark.full(...)`."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    within = called.value if isinstance(called, ast.Attribute) else None
    return called.attr if isinstance(within, ast.Attribute) and within.attr == "mark" else ""


def _ids(marks: Iterable[ast.expr], file: str) -> list[str]:
    found: list[str] = []
    for mark in marks:
        if _name(mark) != MARK:
            continue
        given = mark.args if isinstance(mark, ast.Call) else []
        for value in given:
            if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
                raise MarkError(f"{file}:{mark.lineno}: IDs of requirements must be texts, not computed.")
            found.append(value.value)
        if not given:
            raise MarkError(f"{file}:{mark.lineno}: the mark names no requirement.")
    return found
