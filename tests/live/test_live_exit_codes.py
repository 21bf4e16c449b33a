"""Every refusal of the API server has its exit code, and the page says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muster.errors import ExitCode
from muster.kube.status import error_class, error_from_status

PAGE = Path(__file__).parents[2] / "docs/reference/exit-codes.md"
CODES = {
    400: ExitCode.BAD_INPUT,
    401: ExitCode.UNREACHABLE,
    403: ExitCode.UNREACHABLE,
    404: ExitCode.BAD_INPUT,
    409: ExitCode.NOT_SATISFIED,
    410: ExitCode.UNREACHABLE,
    422: ExitCode.BAD_INPUT,
    429: ExitCode.UNREACHABLE,
    500: ExitCode.UNREACHABLE,
    503: ExitCode.UNREACHABLE,
}


@pytest.mark.parametrize(("code", "exit_code"), CODES.items())
def test_each_answer_has_its_exit_code(code: int, exit_code: ExitCode) -> None:
    assert error_from_status(code, b'{"message": "told"}').exit_code is exit_code


def test_a_name_that_is_taken_is_bad_input() -> None:
    assert error_class(409, "AlreadyExists").exit_code is ExitCode.BAD_INPUT


def test_the_page_lists_every_code() -> None:
    listed = re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert [int(code) for code in listed] == [*map(int, ExitCode), 130]
