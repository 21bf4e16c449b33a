"""Bad flags end in one sentence, before anything is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.cli.goodput import parse_window
from muster.cli.group import run
from muster.errors import BadInputError


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["demo", "--nodes", "8"], "The demo needs at least 16 nodes"),
        (["demo", "--nodes", "zero"], "'zero' is not a valid integer"),
        (["demo", "--pace", "-1"], "is not in the range"),
        (["demo", "--controller", "elsewhere"], "elsewhere"),
        (["demo", "--plant", "/nowhere/plant.yaml"], "Cannot read /nowhere/plant.yaml"),
        (["demo", "--plant", "p.yaml", "--seed", "2"], "leave out --seed and --nodes"),
        (["demo", "--report", "/nowhere/report.html"], "does not exist"),
        (["demo", "--json", "/"], "is a folder"),
        (["node", "n1", "hold"], "add --reason"),
        (["node", "n1", "--reason", "x"], "belong to a decision"),
        (["node", "n1", "explode"], "explode"),
        (["nodes", "--state", "Fine"], "Fine"),
        (["nodes", "--kubeconfig", "/nowhere/config"], "/nowhere/config"),
        (["goodput", "--since", "soon"], '"soon" is not a window'),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    args: list[str], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(args) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("text", ["", "0h", "-1h", "1", "h", "1.5h", "1w", "9999999d"])
def test_windows_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="is not a window"):
        parse_window(text)


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("24h", 86400), ("7d", 604800)])
def test_windows(text: str, seconds: int) -> None:
    assert parse_window(text).total_seconds() == seconds
