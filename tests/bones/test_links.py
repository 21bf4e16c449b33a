"""Links between the pages of this repository: each names a file that is there, and a heading of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
LINK = re.compile(r"\]\(([^()\s]+)\)")
PAGE_NAMED_AS_CODE = re.compile(r"`(?:\.\./|docs/|how-to/|reference/)*([a-z0-9-]+\.md)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = sum(1 for other in found if re.fullmatch(rf"{re.escape(name)}(-\d+)?", other))
        found.add(f"{name}-{number}" if number else name)
    return found


def broken(page: Path, root: Path = ROOT) -> list[str]:
    wrong = []
    for link in LINK.findall(prose(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        inside = target.is_relative_to(root)
        if not inside or not target.exists() or (heading and heading not in anchors(target)):
            wrong.append(link)
    return wrong


def test_there_are_pages_and_links() -> None:
    assert ROOT / "README.md" in PAGES
    assert sum(len(LINK.findall(prose(page))) for page in PAGES) > 50


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_every_page_of_docs_can_be_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        for link in LINK.findall(prose(page)):
            path = link.partition("#")[0]
            target = (page.parent / path).resolve()
            if path and "://" not in link and target.is_file():
                todo.append(target)
            elif target == ROOT / "docs/decisions":
                todo.extend(sorted(target.glob("*.md")))
    assert [str(p.relative_to(ROOT)) for p in PAGES if p.is_relative_to(ROOT / "docs") and p not in reached] == []


def test_pages_link_to_each_other_rather_than_naming_files() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("**/*.md")}
    named = {
        str(page.relative_to(ROOT)): sorted(pages & set(PAGE_NAMED_AS_CODE.findall(prose(page))))
        for page in (ROOT / "docs").glob("**/*.md")
    }
    assert {page: names for page, names in named.items() if names} == {}


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """The test itself: a missing file, a missing heading, and a good one of each."""
    page = tmp_path / "a.md"
    page.write_text("# A b\n\n[x](gone.md) [y](#a-b) [z](#nope) [w](https://example.com/x.md)\n")
    assert broken(page, tmp_path) == ["gone.md", "#nope"]


def test_no_page_has_a_placeholder() -> None:
    for page in PAGES:
        assert "@@" not in prose(page), page
