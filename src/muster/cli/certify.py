"""`muster certify`: plan, run, watch, explain and report certifications."""

from __future__ import annotations

import importlib

import click

# Verb -> (module, one line of help). Nothing is imported before its verb is called.
_VERBS = {
    "plan": ("muster.cli.certify_plan", "Say what would run, how long, at what cost. Changes nothing."),
    "run": ("muster.cli.certify_run", "Start a certification; with --wait follow it to its verdict."),
    "status": ("muster.cli.certify_show", "All certifications, or how far one is."),
    "report": ("muster.cli.certify_show", "The report of one as text, HTML, JSON or JUnit."),
    "explain": ("muster.cli.certify_show", "The evidence for and against one node, and what next."),
    "tests": ("muster.cli.certify_show", "The tests and profiles that there are."),
    "local": ("muster.cli.certify_local", "Try it here: worker processes on this machine, real programs."),
}


class _Verbs(click.Group):
    """Sub-verbs imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        command = getattr(importlib.import_module(_VERBS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - a wrong entry in _VERBS is our own bug
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _VERBS.items()])


@click.group(cls=_Verbs)
def certify() -> None:
    """Prove that nodes and the links between them do the work, and find what does not.

    'muster certify plan' shows what would run; 'muster certify run --wait' starts it and follows it.
    """
