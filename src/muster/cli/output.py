"""`-o table|json|yaml`: one option and one printer for every verb."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def format_option(command: F) -> F:
    """Adds `-o/--output`; the command receives `output: Format`."""
    option = click.option(
        "-o",
        "--output",
        type=click.Choice([f.value for f in Format]),
        default=Format.TABLE.value,
        show_default=True,
        callback=lambda _ctx, _param, value: Format(value),
        help="How to print the result.",
    )
    return option(command)


def emit(value: Any, output: Format, table: Callable[[Any], None]) -> None:
    """Print `value` (plain JSON values) as asked; `table` prints it for people."""
    if output is Format.JSON:
        import json

        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
    elif output is Format.YAML:
        from muster import yamlio

        click.echo(yamlio.dumps(value), nl=False)
    else:
        table(value)
