"""`muster recipe`: resolve, list, explain, check and compare recipes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.output import Format, emit, format_option
from muster.cli.stated import (
    DIMENSIONS,
    Stated,
    catalogue_option,
    open_catalogue,
    resolve_again,
    resolve_stated,
    stated_options,
)
from muster.errors import BadInputError, ExitCode

if TYPE_CHECKING:
    from muster.configure.satisfaction import Subject


def _show(line: str) -> None:
    """Print a line of a table. It may quote a recipe of somebody else: no escape sequence reaches the terminal."""
    from muster.plain_text import printable

    click.echo(printable(line))


class DefaultGroup(click.Group):
    """A group whose first argument may be left out: what is no sub-command belongs to the command `default`."""

    default = "resolve"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            if args and not args[0].startswith("-") and not self._default_takes_arguments():
                return super().parse_args(ctx, args)
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _default_takes_arguments(self) -> bool:
        return any(isinstance(p, click.Argument) for p in self.commands[self.default].params)


@click.group(cls=DefaultGroup)
def recipe() -> None:
    """Resolve, list, explain and check recipes.

    'muster recipe --service eks --accelerator h100 --intent training' is short for 'muster recipe resolve ...', whose
    --help lists every option.
    """


@recipe.command()
@stated_options
@catalogue_option
@click.option(
    "-o",
    "--output",
    default="-",
    metavar="FILE|json|yaml",
    show_default=True,
    help="A file to write, or json or yaml to print; - prints yaml. A file named *.json gets JSON.",
)
def resolve(
    profiles: tuple[str, ...],
    nodes: int | None,
    pools: tuple[str, ...],
    selectors: tuple[str, ...],
    settle: tuple[str, ...],
    catalogue: tuple[str, ...],
    output: str,
    **stated: str | None,
) -> None:
    """Resolve criteria to a locked recipe.

    A cluster whose GPU nodes differ has one --pool for each kind of them; what is stated outside of the pools holds
    for all.
    """
    from muster.configure import lock

    said = Stated(stated, profiles, nodes, pools, selectors, settle)
    found = resolve_stated(said, open_catalogue(catalogue)).recipe
    text = lock.write_json(found) if output == "json" or output.endswith(".json") else lock.write(found)
    if output in ("-", "json", "yaml"):
        click.echo(text, nl=False)
    else:
        write_file(Path(output), text)


def write_file(path: Path, text: str) -> None:
    """Write `path` so that it holds either what it held or all of `text`. Raises BadInputError."""
    import os

    partial: Path | None = None
    try:
        if path.is_dir():
            raise BadInputError(f"{path} is a folder; give a file.")
        if path.exists() and not path.is_file():
            # A device or a pipe (/dev/null, /dev/stdout) is written to, never replaced.
            path.write_text(text, encoding="utf-8")
            return
        # A link stays a link: what it points to is replaced.
        target = path.resolve()
        unfinished = target.parent / f".muster-{os.urandom(8).hex()}"
        with os.fdopen(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            partial = unfinished
            file.write(text)
        unfinished.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644)
        unfinished.replace(target)
    except OSError as error:
        raise BadInputError(f"Cannot write {str(path)[:120]}: {error.strerror}.") from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


@recipe.command("list")
@catalogue_option
@format_option
def list_(catalogue: tuple[str, ...], output: Format) -> None:
    """List the recipes of the catalogue.

    Only the most specific ones: 'eks h100 training ubuntu kubeflow' is listed, and 'eks h100 training' resolves too.
    A dash is a criterion that must not be stated.
    """
    from muster.configure.matching import unavailable
    from muster.configure.resolve import leaf_names

    known = open_catalogue(catalogue)
    rows = [
        {
            "name": name,
            "criteria": {
                d: known.overlays[name].criteria[d] for d in DIMENSIONS if d in known.overlays[name].criteria
            },
            "unavailable": unavailable(name, known),
        }
        for name in leaf_names(known)
    ]
    emit(rows, output, _print_list)


def _print_list(rows: list[dict[str, Any]]) -> None:
    width = {d: max([len(d), *(len(row["criteria"].get(d, "-")) for row in rows)]) for d in DIMENSIONS}
    _show("  ".join(f"{d.upper():<{width[d]}}" for d in DIMENSIONS).rstrip())
    for row in rows:
        line = "  ".join(f"{row['criteria'].get(d, '-'):<{width[d]}}" for d in DIMENSIONS)
        _show(f"{line}  not usable yet: {row['unavailable']}" if row["unavailable"] else line.rstrip())


@recipe.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@stated_options
@click.option("--recipe", "file", metavar="FILE", help="Take criteria, pools and profiles from this recipe.")
@catalogue_option
@format_option
def explain(
    paths: tuple[str, ...],
    file: str | None,
    profiles: tuple[str, ...],
    nodes: int | None,
    pools: tuple[str, ...],
    selectors: tuple[str, ...],
    settle: tuple[str, ...],
    catalogue: tuple[str, ...],
    output: Format,
    **stated: str | None,
) -> None:
    """Say who set a value and what it replaced, or why a component comes after another.

    PATH is component:path (gpu-operator:driver.version), component.version, component.dependsOn, a component alone,
    or constraint:name.
    """
    from muster.configure.provenance import explain as explain_paths

    said = Stated(stated, profiles, nodes, pools, selectors, settle)
    if file is not None and not said.is_empty():
        raise BadInputError("--recipe already holds criteria; give either the file or the criteria.")
    known = open_catalogue(catalogue)
    resolution = resolve_stated(said, known) if file is None else resolve_again(Path(file), known)
    emit(explain_paths(resolution.provenance, paths), output, _print_settings)


def _print_settings(explained: list[dict[str, Any]]) -> None:
    import json

    for entry in explained:
        _show(f"{entry['path']} = {json.dumps(entry['value'], ensure_ascii=False)}")
        for setting in entry["settings"]:
            line = f"  set to {json.dumps(setting['value'], ensure_ascii=False)} by {setting['source']}"
            if "replaced" in setting:
                replaced = json.dumps(setting["replaced"], ensure_ascii=False)
                line += f", replacing {replaced} from {setting['replacedSource']}"
            _show(line)


@recipe.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    metavar="FILE",
    help="Also hold its constraints against this snapshot of a node or cluster; exit 3 when one is not satisfied.",
)
@format_option
def check(file: str, snapshots: tuple[str, ...], output: Format) -> int:
    """Verify that a recipe is whole.

    Its digest matches, its versions are exact, its edges and levels hold together and are those that follow from it,
    the charts know its values, and nothing in it is a literal secret.
    """
    from muster.configure import lock
    from muster.configure.known_paths import known_paths
    from muster.configure.satisfaction import Answer, judge
    from muster.configure.soundness import require_sound

    locked = lock.read(Path(file))
    require_sound(locked, file, known_paths)
    judged = judge(locked, [subject for path in snapshots for subject in _subjects(Path(path))])
    summary = {
        "recipe": file,
        "digest": locked.digest,
        "criteria": locked.criteria,
        "pools": {pool.name: pool.criteria for pool in locked.pools},
        "layers": [f"{layer.name} {layer.digest}" for layer in locked.layers],
        "components": len(locked.components),
        "kubernetes": locked.constraints.get("kubernetes.version", "any"),
        "constraints": [judgement.as_dict() for judgement in judged],
    }
    emit(summary, output, _print_check)
    satisfied = all(judgement.answer is Answer.PASSED for judgement in judged)
    return ExitCode.OK if satisfied else ExitCode.NOT_SATISFIED


def _subjects(path: Path) -> tuple[Subject, ...]:
    from muster.configure.snapshot.file import read_snapshot
    from muster.configure.subjects import subjects_of

    return subjects_of(read_snapshot(path))


def _print_check(summary: Mapping[str, Any]) -> None:
    judged = summary["constraints"]
    open_ones = sum(entry["answer"] != "passed" for entry in judged)
    verdict = f"the file is fine, {open_ones} of {len(judged)} constraints not satisfied" if open_ones else "fine"
    _show(f"{summary['recipe']}: {verdict}, {summary['components']} components, {summary['digest']}")
    for entry in judged:
        found = f", found {entry['found']}" if entry["found"] else ""
        reason = f" ({entry['reason']})" if "reason" in entry else ""
        _show(f"{entry['answer']:<8}{entry['subject']}: {entry['constraint']} {entry['wanted']}{found}{reason}")


@recipe.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--exit-code", is_flag=True, help="Exit 3 when the recipes differ.")
@format_option
def diff(before: str, after: str, exit_code: bool, output: Format) -> int:
    """Say how recipe B differs from recipe A."""
    from muster.configure import lock
    from muster.configure.difference import differences

    found = differences(lock.read(Path(before)), lock.read(Path(after)))
    emit([change.as_dict() for change in found], output, _print_changes)
    return ExitCode.NOT_SATISFIED if found and exit_code else ExitCode.OK


def _print_changes(changes: list[dict[str, Any]]) -> None:
    import json

    if not changes:
        _show("The recipes are equal.")
    for change in changes:
        before, after = (
            json.dumps(change[side], ensure_ascii=False) if side in change else "(absent)"
            for side in ("before", "after")
        )
        _show(f"{change['path']}: {before} -> {after}")
