"""Errors that reach a person: one sentence that names the input and the remedy, and a distinct exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every verb."""

    OK = 0
    INTERNAL = 1
    BAD_INPUT = 2
    NOT_SATISFIED = 3
    UNREACHABLE = 4
    TIMEOUT = 5


class MusterError(Exception):
    """Base of every expected error. `str(error)` is the sentence shown to the person, without a traceback."""

    exit_code: ExitCode = ExitCode.INTERNAL


class BadInputError(MusterError):
    """The user's input cannot be used; the sentence says which and what to do."""

    exit_code = ExitCode.BAD_INPUT


class NotSatisfiedError(MusterError):
    """The input was understood, and the answer is no (assertion, constraint, drift, checksum)."""

    exit_code = ExitCode.NOT_SATISFIED


class UnreachableError(MusterError):
    """A cluster, registry or file server did not answer."""

    exit_code = ExitCode.UNREACHABLE


class DeadlineError(MusterError):
    """Something did not finish within the time it was given."""

    exit_code = ExitCode.TIMEOUT
