"""Every code leads to a page; what the program says in a page is what it says now."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import BadInputError
from muster.faults.runbooks import Runbook, runbook
from tests.read.cases import DATA, entries, report
from tests.runbooks.pages import BLOCK, FOLDER, INDEX, filled, known, shortened
from tests.runbooks.samples import screen

ROOT = Path(__file__).parents[2]
PAGES = sorted(FOLDER.glob("*.md"))
SECTIONS = ["What it looks like", "What Muster does", "Check", "What usually helps", "Never"]


def test_there_is_a_page_for_each_runbook_and_no_other() -> None:
    assert [page.name for page in PAGES] == sorted([INDEX, *(f"{page.value}.md" for page in Runbook)])
    assert all((ROOT / page.path).is_file() for page in Runbook)


def test_every_code_is_named_in_the_index_on_the_row_of_its_page() -> None:
    rows = dict(re.findall(r"^\| \[[^]]*\]\(([a-z-]+)\.md\) \| (.*) \|$", (FOLDER / INDEX).read_text(), re.MULTILINE))
    for code in known():
        row = rows[code.page.value]
        if code.shown.startswith("`"):
            assert code.shown in row, code
        else:
            assert int(code.code) in numbers(row, code.shown.split()[0]), code


def numbers(row: str, kind: str) -> set[int]:
    part = next(p for p in row.split("; ") if p.startswith(f"{kind} "))
    found: set[int] = set()
    for item in part.removeprefix(f"{kind} ").split(", "):
        first, _, last = item.partition(" to ")
        found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_the_program_writes_is_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert BLOCK.search(text), "the page holds nothing from the program"
    assert filled(page.name, text) == text, "stale: run python -m tests.runbooks.pages"


@pytest.mark.parametrize("page", list(Runbook), ids=lambda page: page.value)
def test_every_page_answers_the_same_questions_in_the_same_order(page: Runbook) -> None:
    text = (ROOT / page.path).read_text(encoding="utf-8")
    assert [h for h in re.findall(r"^## (.*)$", text, re.MULTILINE) if h in SECTIONS] == SECTIONS
    assert len(text.splitlines()) < 150, "a runbook is read at night"


def test_pages_about_hardware_say_when_to_replace_it() -> None:
    told = {p for p in Runbook if "\n## When to replace\n" in (ROOT / p.path).read_text(encoding="utf-8")}
    assert {p for p in Runbook if any(c.page is p and c.hint in ("replace", "reset-gpu") for c in known())} <= told


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_code_has_a_page(check: str, code: str) -> None:
    assert runbook(check, code) in Runbook
    assert runbook("xid", code) in Runbook


@pytest.mark.parametrize(
    ("check", "code", "page"),
    [
        ("xid", "31", Runbook.APPLICATION),
        ("xid", "79", Runbook.GPU_GONE),
        ("xid", "99999", Runbook.UNKNOWN),
        ("xid", "149", Runbook.NVLINK),
        ("nvlink5", "149", Runbook.NVLINK),
        ("dcgm", "DCGM_FR_SRAM_THRESHOLD", Runbook.GPU_MEMORY),
        ("pattern", "xid74-reg0-parity", Runbook.NVLINK),
        ("pattern", "many-repairs", Runbook.REPAIRS_EXHAUSTED),
        ("nccl-tests", "numeric-corruption", Runbook.CERTIFICATION_FAILED),
        ("nvbandwidth", "data-miscompare", Runbook.CERTIFICATION_FAILED),
        ("of-a-plugin", "raid-degraded", Runbook.UNKNOWN),
    ],
)
def test_codes_of_a_family_lead_to_its_page(check: str, code: str, page: Runbook) -> None:
    assert runbook(check, code) is page


def test_no_code_that_stops_work_has_the_page_of_unknown_codes() -> None:
    grave = [c for c in known() if c.severity in ("fatal", "warning") and c.page is Runbook.UNKNOWN]
    assert [c.shown for c in grave if c.check != "dcgm"] == []


def test_what_the_readers_find_in_the_samples_has_a_page() -> None:
    lost: set[tuple[str, str]] = set()
    for name in sorted({entry["case"] for _, entry in entries()}):
        for file in sorted((DATA / "cases" / name).glob("input.*")):
            with suppress(BadInputError):  # needs the other files of its case
                for found in report(name, file.name)["faults"]:
                    check, code = str(found["kind"]), str(found["code"])
                    if found["severity"] in ("fatal", "warning") and runbook(check, code) is Runbook.UNKNOWN:
                        lost.add((check, code))
    assert lost == set()


def test_ranges_are_short() -> None:
    assert (
        shortened(["XID 3", "XID 1", "XID 2", "XID 8", "SXID 9", "`a`", "`b`"]) == "XID 1 to 3, 8; SXID 9; `a`; `b`"
    )


@pytest.mark.parametrize("page", list(Runbook), ids=lambda page: page.value)
def test_the_screen_of_a_family_names_its_page(page: Runbook) -> None:
    told = screen(page).partition("Runbooks:\n")[2].split()
    assert page.path in told
    assert len(told) <= 3
