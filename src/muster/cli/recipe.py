"""`muster recipe`: resolve, list, explain, check and compare recipes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.output import Format, emit, format_option
from muster.configure.criteria import VOCABULARY, Dimension
from muster.errors import BadInputError

if TYPE_CHECKING:
    from muster.configure.resolve import Resolution

F = TypeVar("F", bound=Callable[..., Any])
MEANINGS = {
    "service": "Who runs Kubernetes",
    "accelerator": "GPU model",
    "intent": "What the cluster is for",
    "os": "Operating system of the GPU nodes",
    "platform": "What runs the workloads",
}
DIMENSIONS = tuple(MEANINGS)


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


def criteria_options(command: F) -> F:
    """Adds one option per dimension, `--profile` and `--nodes`."""
    for option in (
        click.option(
            "--nodes", type=click.IntRange(1, 1_000_000), metavar="N", help="Number of GPU nodes, for sizing."
        ),
        click.option(
            "--profile",
            "profiles",
            multiple=True,
            metavar="NAME=VALUE",
            help="Choose a value of a profile, for example gpuStack=operator-managed on AKS.",
        ),
        *(
            click.option(f"--{d}", metavar="NAME", help=f"{meaning}: {', '.join(VOCABULARY[Dimension(d)])}.")
            for d, meaning in reversed(MEANINGS.items())
        ),
    ):
        command = option(command)
    return command


def parse_profiles(texts: Sequence[str]) -> dict[str, str]:
    """Read `name=value` texts. Raises BadInputError."""
    profiles: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value or name in profiles:
            raise BadInputError(f"--profile {text[:80]!r} is malformed or given twice; write it once as name=value.")
        profiles[name] = value
    return profiles


def resolve_stated(stated: dict[str, str | None], profiles: Sequence[str], nodes: int | None) -> Resolution:
    """Resolve what the options state against the built-in catalogue."""
    from muster.configure.catalogue import load
    from muster.configure.criteria import parse_criteria
    from muster.configure.resolve import resolve

    return resolve(parse_criteria(stated), load(), parse_profiles(profiles), nodes)


@click.group(cls=DefaultGroup)
def recipe() -> None:
    """Resolve, list, explain and check recipes.

    'muster recipe --service eks --accelerator h100 --intent training' is short for 'muster recipe resolve ...', whose
    --help lists every option.
    """


@recipe.command()
@criteria_options
@click.option("-o", "--output", default="-", metavar="FILE", show_default=True, help="Where to write; - is stdout.")
def resolve(profiles: tuple[str, ...], nodes: int | None, output: str, **stated: str | None) -> None:
    """Resolve criteria to a locked recipe."""
    from muster.configure import lock

    text = lock.write(resolve_stated(stated, profiles, nodes).recipe)
    if output == "-":
        click.echo(text, nl=False)
    else:
        write_file(Path(output), text)


def write_file(path: Path, text: str) -> None:
    """Write `path` so that it holds either what it held or all of `text`. Raises BadInputError."""
    import os
    import tempfile

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
        handle, name = tempfile.mkstemp(prefix=".muster-", dir=target.parent)
        partial = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        partial.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644)
        partial.replace(target)
    except OSError as error:
        raise BadInputError(f"Cannot write {str(path)[:120]}: {error.strerror}.") from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


@recipe.command("list")
@format_option
def list_(output: Format) -> None:
    """List the recipes of the catalogue.

    Only the most specific ones: 'eks h100 training ubuntu kubeflow' is listed, and 'eks h100 training' resolves too.
    A dash is a criterion that must not be stated.
    """
    from muster.configure.catalogue import load
    from muster.configure.matching import unavailable
    from muster.configure.resolve import leaf_names

    catalogue = load()
    rows = [
        {
            "name": name,
            "criteria": {
                d: catalogue.overlays[name].criteria[d] for d in DIMENSIONS if d in catalogue.overlays[name].criteria
            },
            "unavailable": unavailable(name, catalogue),
        }
        for name in leaf_names(catalogue)
    ]
    emit(rows, output, _print_list)


def _print_list(rows: list[dict[str, Any]]) -> None:
    width = {d: max([len(d), *(len(row["criteria"].get(d, "-")) for row in rows)]) for d in DIMENSIONS}
    click.echo("  ".join(f"{d.upper():<{width[d]}}" for d in DIMENSIONS).rstrip())
    for row in rows:
        line = "  ".join(f"{row['criteria'].get(d, '-'):<{width[d]}}" for d in DIMENSIONS)
        click.echo(f"{line}  not usable yet: {row['unavailable']}" if row["unavailable"] else line.rstrip())


@recipe.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@criteria_options
@click.option("--recipe", "file", metavar="FILE", help="Take criteria and profiles from this recipe.")
@format_option
def explain(
    paths: tuple[str, ...],
    file: str | None,
    profiles: tuple[str, ...],
    nodes: int | None,
    output: Format,
    **stated: str | None,
) -> None:
    """Say which file set a value and what it replaced.

    PATH is component:path (gpu-operator:driver.version), a component alone, or constraint:name.
    """
    from muster.configure.provenance import explain as explain_paths

    if file is not None:
        resolution = _resolve_again(Path(file), stated, profiles, nodes)
    else:
        resolution = resolve_stated(stated, profiles, nodes)
    emit(explain_paths(resolution.provenance, paths), output, _print_settings)


def _resolve_again(
    path: Path, stated: dict[str, str | None], profiles: Sequence[str], nodes: int | None
) -> Resolution:
    from muster.configure import lock
    from muster.configure.catalogue import load
    from muster.configure.criteria import parse_criteria
    from muster.configure.resolve import resolve as resolve_criteria

    if profiles or nodes is not None or any(stated.values()):
        raise BadInputError("--recipe already holds criteria; give either the file or the criteria.")
    locked = lock.read(path)
    catalogue = load()
    if locked.catalogue != catalogue.digest:
        raise BadInputError(f"{path} comes from another catalogue than this version of Muster has; resolve it again.")
    return resolve_criteria(parse_criteria(dict(locked.criteria)), catalogue, locked.profiles, locked.nodes)


def _print_settings(explained: list[dict[str, Any]]) -> None:
    import json

    for entry in explained:
        click.echo(f"{entry['path']} = {json.dumps(entry['value'], ensure_ascii=False)}")
        for setting in entry["settings"]:
            line = f"  set to {json.dumps(setting['value'], ensure_ascii=False)} by {setting['source']}"
            if "replaced" in setting:
                replaced = json.dumps(setting["replaced"], ensure_ascii=False)
                line += f", replacing {replaced} from {setting['replacedSource']}"
            click.echo(line)


@recipe.command()
@click.argument("file", metavar="FILE")
@format_option
def check(file: str, output: Format) -> None:
    """Verify that a recipe is whole.

    Its digest matches, its versions are exact, its edges hold together, and nothing in it is a literal secret.
    """
    from muster.configure import lock
    from muster.configure.lint import lint_values

    locked = lock.read(Path(file))
    for component in locked.components:
        lint_values(component.name, component.values, file)
    summary = {
        "recipe": file,
        "digest": locked.digest,
        "criteria": locked.criteria,
        "components": len(locked.components),
        "kubernetes": locked.constraints.get("kubernetes.version", "any"),
    }
    emit(summary, output, lambda s: click.echo(f"{file}: fine, {s['components']} components, {s['digest']}"))


@recipe.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@format_option
def diff(before: str, after: str, output: Format) -> None:
    """Say how recipe B differs from recipe A."""
    from muster.configure import lock
    from muster.configure.difference import differences

    found = differences(lock.read(Path(before)), lock.read(Path(after)))
    emit([change.as_dict() for change in found], output, _print_changes)


def _print_changes(changes: list[dict[str, Any]]) -> None:
    import json

    if not changes:
        click.echo("The recipes are equal.")
    for change in changes:
        before, after = (
            json.dumps(change[side], ensure_ascii=False) if side in change else "(absent)"
            for side in ("before", "after")
        )
        click.echo(f"{change['path']}: {before} -> {after}")
