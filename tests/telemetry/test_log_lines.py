"""Log lines: one style, one line each, at the time of the clock."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sim.virtual import VirtualClock
from muster.telemetry.log_lines import MESSAGE_LIMIT, LogFormat, configure


@pytest.fixture(autouse=True)
def _root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def told(log_format: LogFormat, message: str, *, level: int = logging.INFO) -> str:
    stream = io.StringIO()
    configure(log_format, VirtualClock(), level=logging.INFO, stream=stream)
    logging.getLogger("muster.x").log(level, "%s", message)
    return stream.getvalue()


def test_text_has_time_level_logger_and_message() -> None:
    assert told(LogFormat.TEXT, "a node") == "2026-01-05T08:00:00Z INFO muster.x: a node\n"
    assert told(LogFormat.TEXT, "a node", level=logging.DEBUG) == ""


def test_json_has_the_same_four() -> None:
    assert json.loads(told(LogFormat.JSON, "a node", level=logging.WARNING)) == {
        "time": "2026-01-05T08:00:00Z",
        "level": "WARNING",
        "logger": "muster.x",
        "message": "a node",
    }


@given(st.text())
def test_any_message_is_one_line(message: str) -> None:
    text, line = told(LogFormat.TEXT, message), told(LogFormat.JSON, message)
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert line.count("\n") == 1
    assert json.loads(line)["message"] == message[:MESSAGE_LIMIT]


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_a_message_without_end_is_cut(log_format: LogFormat) -> None:
    assert len(told(log_format, "x" * 10**6)) < MESSAGE_LIMIT + 200


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_an_exception_stays_in_its_line(log_format: LogFormat) -> None:
    stream = io.StringIO()
    configure(log_format, VirtualClock(), level=logging.INFO, stream=stream)
    try:
        raise KeyError("a bug")
    except KeyError:
        logging.getLogger("muster.x").exception("it broke")
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert re.search("it broke.*Traceback.*KeyError", line)


def test_client_libraries_are_quiet() -> None:
    stream = io.StringIO()
    configure(LogFormat.TEXT, VirtualClock(), level=logging.DEBUG, stream=stream)
    logging.getLogger("httpx2").info("HTTP Request: GET https://here")
    logging.getLogger("muster.x").debug("ours")
    assert stream.getvalue().endswith("DEBUG muster.x: ours\n")
    assert "httpx2" not in stream.getvalue()
