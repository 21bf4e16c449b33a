"""The command line as a user meets it: real processes, exit codes, one sentence for an error, no traceback."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest

from muster.cli.main import VERBS, help_text


def muster(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "muster.cli.main", *args], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_lists_every_verb_and_imports_nothing_heavy() -> None:
    program = (
        "import sys; from muster.cli.main import help_text; text = help_text(); "
        "heavy = sorted({'click', 'rich', 'lightkube', 'aiohttp', 'msgspec', 'yaml', 'asyncio'} & set(sys.modules)); "
        "print(heavy); print(text)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    first, _, text = result.stdout.partition("\n")
    assert first == "[]"
    for verb in VERBS:
        assert f"\n  {verb} " in text


def test_help_and_version_exit_with_zero() -> None:
    assert muster("--help").stdout == help_text() + "\n"
    assert muster("--help").returncode == 0
    version = muster("--version")
    assert version.returncode == 0
    assert version.stdout.startswith("muster ")


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_of_the_table_exists_and_explains_itself(verb: str) -> None:
    module, _, attribute = VERBS[verb][0].partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.help


def test_a_reader_that_goes_away_is_no_error() -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "muster.cli.main", "recipe", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert writer.stderr.read() == b""
    assert writer.wait(timeout=60) == 0


def test_a_full_disk_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "muster.cli.main", "recipe", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert result.returncode == 1
    assert "No space left on device" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["nosuchverb"], "No such command 'nosuchverb'"),
        (["read", "--nosuchflag"], "No such option"),
        (["--nosuchflag"], "No such option"),
        (["recipe", "--accelerator", "h999"], "h999"),
        (["read", "/nonexistent/file"], "/nonexistent/file"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_two(args: list[str], part: str) -> None:
    result = muster(*args)
    assert result.returncode == 2
    assert part in result.stderr
    assert result.stderr.startswith("muster: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
