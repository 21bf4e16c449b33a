"""Commands in the pages: each verb and flag exists, and what README.md shows is what the program prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from muster.cli.group import cli, run

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
BLOCK_LINE = re.compile(r"^(?: {4}|\t)\s*(?:\$ )?(muster .*)$")
INLINE = re.compile(r"`(muster [a-z][^`]*)`")


def commands(text: str) -> Iterator[str]:
    """Every `muster ...` in indented blocks (continued lines joined) and in the running text."""
    lines = iter(text.splitlines())
    for line in lines:
        found = BLOCK_LINE.match(line)
        if found is None:
            yield from INLINE.findall(line)
            continue
        command = found.group(1)
        while command.endswith("\\"):
            command = command[:-1] + next(lines).strip()
        yield command


def words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    taken: list[str] = []
    for word in lexer:
        if re.fullmatch(r"[|&;<>()]+", word):
            break
        taken.append(word)
    return taken[1:]


def unknown(command: str) -> list[str]:
    """What in the command the program does not know: a verb, a sub-command or a flag."""
    found: click.Command = cli
    context = click.Context(cli, info_name="muster")
    flags = {"-h", "--help"}
    wrong: list[str] = []
    default = ""
    for word in words(command):
        if word.startswith("-") and word != "-":
            if found is cli:
                flags |= _flags(cli)
            name = word.partition("=")[0]
            if isinstance(found, click.Group) and name not in flags | _flags(found):
                default = getattr(found, "default", "")
                if not default:
                    wrong.append(word)
                    continue
                found = found.commands[default]
            if name not in flags | _flags(found):
                wrong.append(word)
        elif isinstance(found, click.Group) and re.fullmatch(r"[a-z][a-z-]*", word):
            inner = found.get_command(context, word)
            if inner is not None:
                found = inner
            elif found is cli:
                return [word]
            elif name := getattr(found, "default", ""):
                found = found.commands[name]
    return wrong


def _flags(command: click.Command) -> set[str]:
    return {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_verbs_and_flags_of_the_page_exist(page: Path) -> None:
    wrong = {command: found for command in commands(page.read_text(encoding="utf-8")) if (found := unknown(command))}
    assert wrong == {}


def test_the_test_sees_what_does_not_exist() -> None:
    assert unknown("muster frobnicate x") == ["frobnicate"]
    assert unknown("muster recipe --service eks --nope 1 -o x") == ["--nope"]
    assert unknown("muster bundle verify x --force") == ["--force"]
    assert unknown("muster bundle r.yaml --deployer helm -o b && x --not-ours") == []
    assert sum(1 for page in PAGES for _ in commands(page.read_text(encoding="utf-8"))) > 60


def test_the_readme_shows_what_the_program_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of "Lock a recipe, render it", run one after the other; digests are left out of the comparison."""
    monkeypatch.chdir(tmp_path)
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("### Lock a recipe")[1].split("\n### ")[0]
    ran = 0
    for command in commands(section):
        given = words(command)
        if given[0] not in ("recipe", "bundle"):
            continue
        assert run(given) == 0, command
        captured = capsys.readouterr()
        for line in (captured.out + captured.err).splitlines():
            assert given[1] == "explain" or re.sub(r"sha256:\w+", "sha256:", line) in section.replace("...", "")
        ran += 1
    assert ran >= 4
