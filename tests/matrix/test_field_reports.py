"""Every field report has a test that exists, or a reason; the page of them is current."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from tests.matrix.field_reports import REPORTS, page

ROOT = Path(__file__).parents[2]
NUMBERS = """
363 458 121 753 1415 1451 1416 1534 1280 1281 1678 1807 1808 1805 1543 1639 1713 1439 1441 1463 291 798 955 1513 1549
1594 1505 895 336 1120 470 485 546 1009 1299 1305 1585 1743 1747 1881 911 1471 883 1275 1034 1423 1425 1642 1756 1243
1690 1692 887 1798 1240 1361 1379 1462 1488 1529 1542 1512 1393 1025 919 1857 1871 1685 1865 1310 957 1031 1583 1861
1545 754 124 1563 1590 1595 193 1776 1903 1904 367 127 716 1554 1497
"""


@lru_cache
def names_in(module: str) -> frozenset[str]:
    """Names of the tests of a module, those of classes as `Class.test`."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    plain = {node.name for node in tree.body if isinstance(node, functions)}
    inside = {
        f"{node.name}.{item.name}"
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, functions)
    }
    return frozenset(plain | inside)


def exists(dotted: str) -> bool:
    parts = dotted.split(".")
    split = next(i for i, part in enumerate(parts) if part[:1].isupper() or i == len(parts) - 1)
    return ".".join(parts[split:]) in names_in(".".join(parts[:split]))


def test_every_report_is_there_once() -> None:
    told = [number for report in REPORTS for number in report.numbers]
    assert sorted(told) == sorted(int(n) for n in NUMBERS.split())


def test_every_report_has_a_test_that_exists_or_a_reason() -> None:
    missing = [(report.numbers, test) for report in REPORTS for test in report.tests if not exists(test)]
    assert missing == []
    assert [report.numbers for report in REPORTS if not report.tests and not report.reason] == []
    assert not exists("tests.matrix.test_field_reports.test_that_nobody_wrote")
    assert not exists("tests.matrix.test_nowhere.test_x")


def test_the_page_is_current() -> None:
    written = (ROOT / "docs/reference/field-reports.md").read_text(encoding="utf-8")
    assert written == page(), "python -m tests.matrix.field_reports <page>"
