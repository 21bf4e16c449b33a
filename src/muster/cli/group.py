"""The click group behind `muster VERB`: verbs imported when called, errors as one sentence and an exit code."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from muster import __version__
from muster.cli.main import VERBS, help_text
from muster.errors import ExitCode, MusterError

MAX_SENTENCE = 4000
"""Characters of an error. The longest that are meant list a dozen completions of a recipe."""


class LazyGroup(click.Group):
    """A group whose verbs are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        module, _, attribute = VERBS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - a wrong entry in VERBS is our own bug
        return command

    def get_help(self, ctx: click.Context) -> str:  # noqa: ARG002
        return help_text()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="muster")
def cli(debug: bool) -> None:
    """Keeps GPU Kubernetes clusters fit for work."""


def _say(sentence: str) -> None:
    from muster.plain_text import printable

    # It may quote a file of somebody else: no escape sequence of that reaches the terminal, and no flood.
    shown = sentence if len(sentence) <= MAX_SENTENCE else f"{sentence[:MAX_SENTENCE]}..."
    click.echo(f"muster: {printable(shown)}", err=True)


def run(args: list[str]) -> int:
    """Run one verb and return the exit code of the process."""
    debug = "--debug" in args
    try:
        result: Any = cli.main(args=args, prog_name="muster", standalone_mode=False)
        if sys.stdout is not None:  # closed by the caller: `muster ... >&-`
            sys.stdout.flush()
        return result if isinstance(result, int) else ExitCode.OK
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return ExitCode.BAD_INPUT
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "muster"
        _say(f"{error.format_message().rstrip('.')}; see '{where} --help'.")
        return ExitCode.BAD_INPUT
    except click.ClickException as error:
        _say(error.format_message())
        return ExitCode.BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        return 130
    except MusterError as error:
        if debug:
            raise
        _say(str(error))
        return error.exit_code
    except SystemExit:
        # No verb exits by itself. click does, with 1, when the reader (head, less) went away; that is no error.
        return ExitCode.OK
    except OSError as error:
        if debug:
            raise
        what = f"{error.filename}: " if error.filename else ""
        _say(f"the system refused ({what}{error.strerror or error}); free space or permissions may be missing.")
        return ExitCode.INTERNAL
    except Exception as error:  # the last resort for a bug of ours
        if debug:
            raise
        _say(f"internal error ({type(error).__name__}: {error}); run again with --debug and report the traceback.")
        return ExitCode.INTERNAL
