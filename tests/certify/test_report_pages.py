"""What the pages on certification say is so: examples are parsed and run, vocabularies are complete."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import click
import pytest

from muster.cli.certify import certify
from muster.cli.group import run
from muster.resources.certification import FaultAt, Layer

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = ("certify-a-cluster", "read-a-report", "write-a-test")


def guide(name: str) -> str:
    return (DOCS / "how-to" / f"{name}.md").read_text()


def block(page: str, language: str) -> str:
    return page.split(f"```{language}\n")[1].split("```")[0]


def commands(page: str) -> list[list[str]]:
    """The lines of the page that call `muster certify`, without comments."""
    lines = re.findall(r"^    muster (certify .*)$", page, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("name", GUIDES)
def test_every_command_of_a_guide_is_one_that_exists(name: str) -> None:
    found = commands(guide(name))
    assert found
    for args in found:
        context = click.Context(certify)
        command = certify.get_command(context, args[1])
        assert command is not None, args
        command.make_context(args[1], [a for a in args[2:] if a != "..."] or ["x"])


def test_options_of_the_guide_exist() -> None:
    context = click.Context(certify)
    known = set()
    for verb in certify.list_commands(context):
        command = certify.get_command(context, verb)
        assert command is not None
        known |= {option for parameter in command.params for option in parameter.opts}
    for name in GUIDES:
        for option in re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", guide(name)):
            assert option in known or option == "--debug" or option == "--ranks", (name, option)


def test_the_test_of_the_guide_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "probe.yaml"
    file.write_text(block(guide("write-a-test"), "yaml"))
    args = [
        "--nodes",
        "n1",
        "--tests",
        "host,scratch-write",
        "--custom-test",
        str(file),
        "--floor",
        "scratch-write=0.5",
    ]
    assert run(["certify", "run", "--dry-run", "-o", "json", *args]) == 0
    (test,) = json.loads(capsys.readouterr().out)["spec"]["customTests"]
    assert (test["name"], test["durationS"], test["deadlineS"], test["metric"]) == (
        "scratch-write",
        20,
        120,
        "bandwidth",
    )


def test_the_program_of_the_guide_reports_as_it_says(tmp_path: Path) -> None:
    from muster.workloads.command import judge

    file = tmp_path / "probe.py"
    file.write_text(block(guide("write-a-test"), "python"))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    result = judge("probe", done.returncode, done.stdout)
    assert result.ok
    assert result.unit == "GB/s"
    assert result.value is not None
    assert result.value > 0


@pytest.mark.full
def test_the_program_of_the_guide_runs_as_the_guide_says(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(block(guide("write-a-test"), "python"))
    (line,) = re.findall(r"^    python -m (muster\.workloads .*)$", guide("write-a-test"), re.MULTILINE)
    args = [sys.executable, "-m", *shlex.split(line)]
    args[args.index("command") + 1 : args.index("command") + 1] = ["--json", "--device", "cpu"]
    done = subprocess.run(args, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert '"GB/s"' in done.stdout


@pytest.mark.parametrize(("heading", "words"), [("What is named between nodes", FaultAt), ("Layers", Layer)])
def test_the_page_of_verdicts_names_the_whole_vocabulary(heading: str, words: type[StrEnum]) -> None:
    page = (DOCS / "reference" / "verdicts.md").read_text()
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert [row for row in rows if row != "at"] == [word.value for word in words if word.value]


def test_layers_of_the_guide_are_those_that_exist() -> None:
    section = guide("read-a-report").split("| layer | look at |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE) == [layer.value for layer in Layer if layer.value]
