"""The reference page of policies names every variable, field and disposition; its examples compile and hold."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from muster import yamlio
from muster.operate.backtest.cases import read_cases, run_case
from muster.operate.patterns.page import page as patterns_page
from muster.operate.policy import SHIPPED
from muster.operate.policy_files import read_policy
from muster.operate.policy_problems import problems
from muster.operate.rules import Vocabulary, compile_rule, names
from muster.resources.fault_policy import (
    CertificationPolicy,
    Correlation,
    Disposition,
    DriftAction,
    DriftPolicy,
    Pattern,
    Rule,
)

DOCS = Path(__file__).parents[2] / "docs/reference"
PAGE = (DOCS / "policy.md").read_text()


def blocks() -> list[str]:
    """The indented blocks of the page."""
    return [
        textwrap.dedent(block)
        for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE, re.MULTILINE)
        if block.strip()
    ]


def cells(section: str) -> list[str]:
    """The names in the first column of the tables of a section."""
    part = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    return [
        name
        for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
        for name in re.findall(r"`([A-Za-z_0-9.]+)`", row)
    ]


def test_the_page_names_every_variable_and_no_other() -> None:
    known = sorted({name for vocabulary in Vocabulary for name in names(vocabulary)})
    assert sorted(cells("Expressions")) == known


@pytest.mark.parametrize("vocabulary", list(Vocabulary))
def test_the_page_says_where_a_variable_may_be_used(vocabulary: Vocabulary) -> None:
    rows = re.findall(
        r"^\| (`.*?) \| .*? \| (.*) \|$", PAGE.split("## Expressions")[1].split("## Disp")[0], re.MULTILINE
    )
    only = {
        name: words.split("; ")[-1]
        for cell, words in rows
        for name in re.findall(r"`([a-z_0-9.]+)`", cell)
        if " only" in words
    }
    for name, words in only.items():
        where = (
            Vocabulary.RULE if "rules" in words else Vocabulary.UNLESS if "unless" in words else Vocabulary.PATTERN
        )
        assert (name in names(vocabulary)) is (vocabulary is where), name


def test_the_page_names_every_disposition_mildest_first() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \|", PAGE.split("## Dispositions")[1].split("Of a rule")[0], re.MULTILINE)
    assert rows == [d.value for d in Disposition]


@pytest.mark.parametrize(
    ("model", "section", "told_elsewhere"),
    [
        (Rule, "Dispositions, mildest first", {"name", "when", "disposition"}),
        (Pattern, "Patterns", {"name", "description", "severity", "scope", "hint", "message", "details"}),
        (Correlation, "Correlations", {"name"}),
        (CertificationPolicy, "Drift and certificates", set()),
    ],
)
def test_the_page_names_every_field(model: type, section: str, told_elsewhere: set[str]) -> None:
    fields = set(model.__struct_encode_fields__)  # type: ignore[attr-defined]
    assert fields - told_elsewhere <= set(cells(section))
    assert all(f"`{name}`" in PAGE or f"{name}:" in PAGE for name in fields)


def test_the_page_names_every_setting_of_drift_with_its_default() -> None:
    part = PAGE.split("## Drift and certificates")[1].split("\n## ")[0]
    told = dict(re.findall(r"`drift\.([a-z]+)`[^|]*\| `([a-z]+)` \|", part))
    defaults = {k: v.value for k, v in to_builtins_of(DriftPolicy()).items() if k != "max_grace_s"}
    assert told == defaults
    assert "`drift.maxGraceS`" in part


def to_builtins_of(drift: DriftPolicy) -> dict[str, DriftAction]:
    return {name: getattr(drift, name) for name in drift.__struct_fields__}


def test_the_page_names_every_policy_that_comes_with_muster() -> None:
    part = PAGE.split("## Policies that come with Muster")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", part, re.MULTILINE) == [
        "safe-default",
        "full-automation",
        "observe-only",
    ]
    assert sorted(SHIPPED) == ["full-automation", "observe-only", "safe-default"]


def test_the_example_is_fine_and_passes_the_cases_of_the_page() -> None:
    policy_text = next(b for b in blocks() if "kind: FaultPolicy" in b)
    case_text = next(b for b in blocks() if b.lstrip().startswith("cases:"))
    policy = read_policy(yamlio.loads(policy_text, "example"), "example")
    assert problems(policy) == ()
    # The example has no provider for replacements: the page's case expects what is left.
    results = [run_case(c, [policy], "cases") for c in read_cases(yamlio.loads(case_text, "cases"), "cases")]
    assert {r.name: r.differences for r in results if r.differences} == {}
    assert len(results) == 4


def test_expressions_in_the_text_compile() -> None:
    code = [text for line in PAGE.splitlines() if line[:4].strip() for text in re.findall(r"`([^`]*)`", line)]
    found = [text for text in code if re.search(r"&&|==|> \d", text)]
    assert found
    for text in found:
        vocabularies = [v for v in Vocabulary if not compile_rule(text, v).problem]
        assert vocabularies, text


def test_the_page_of_patterns_is_current() -> None:
    stored = (DOCS / "patterns.md").read_text()
    assert stored == patterns_page(), "run python -m muster.operate.patterns.page docs/reference/patterns.md"
