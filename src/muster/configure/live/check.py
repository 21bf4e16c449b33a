"""One thing that must hold, with what drift needs to know when it does not."""

from __future__ import annotations

from dataclasses import dataclass

from muster.plain_text import plain
from muster.resources.baseline import AssertionResult, DriftClass

PASSED, FAILED, UNKNOWN = AssertionResult.PASSED, AssertionResult.FAILED, AssertionResult.UNKNOWN
MAX_MESSAGE = 800
"""What controllers, kubelets and registries say is written by others: no megabyte of theirs may reach a status."""


@dataclass(frozen=True)
class Verdict:
    """What came of looking: the result, and in `why` one clause or sentence; empty when all is well."""

    result: AssertionResult
    why: str = ""


WELL = Verdict(PASSED)


def failed(why: str) -> Verdict:
    return Verdict(FAILED, plain(why, MAX_MESSAGE))


def unknown(why: str) -> Verdict:
    return Verdict(UNKNOWN, plain(why, MAX_MESSAGE))


def worst(verdicts: list[Verdict]) -> Verdict:
    """The failures together, else the first unknown, else well."""
    for result in (FAILED, UNKNOWN):
        told = [v.why for v in verdicts if v.result is result]
        if told:
            return Verdict(result, "; ".join(dict.fromkeys(told)))
    return WELL


@dataclass(frozen=True)
class Check:
    """`name` is stable over time. `drift` is the class under which a failure counts as drift, None when something
    else reports that difference already. `look` says what to look at."""

    name: str
    component: str
    verdict: Verdict
    look: str = ""
    drift: DriftClass | None = DriftClass.ASSERTION
    node: str = ""
    path: str = ""
    expected: str = ""
    found: str = ""

    @property
    def result(self) -> AssertionResult:
        return self.verdict.result

    @property
    def message(self) -> str:
        """One or two sentences for people: what, where, why, what to look at."""
        if self.verdict.result is PASSED:
            return self.verdict.why[:MAX_MESSAGE]
        subject, look = plain(self.path or self.name, 300), plain(self.look, 300)
        sentence = f"{subject}: {self.verdict.why.rstrip('.')}."
        if look:
            sentence = f"{sentence[: MAX_MESSAGE - len(look) - 8]} See {look}."
        return sentence[:MAX_MESSAGE]
