"""The report is one well-formed file that needs nothing else and hides nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from muster.demo.figures import timeline_svg
from muster.demo.outcome import Line
from muster.demo.report import report_html
from muster.operate.goodput_report import goodput_values
from muster.operate.goodput_svg import waterfall_svg
from muster.operate.ledger import build
from tests.demo.samples import T0, at, outcome


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html.split("\n", 1)[1])


def test_it_is_well_formed_and_refers_to_nothing_outside() -> None:
    html = report_html(outcome())
    root = parsed(html)
    for element in root.iter():
        assert not element.tag.endswith(("script", "link", "img", "iframe", "object"))
        for name in element.attrib:
            assert name not in ("src", "href", "onload", "onclick")
    assert re.findall(r"https?://[^\"<\s]+", html) == ["http://www.w3.org/1999/xhtml"]
    assert "url(" not in html


def test_every_figure_says_that_it_is_simulated() -> None:
    root = parsed(report_html(outcome()))
    figures = [e for e in root.iter() if e.tag.endswith("figure")]
    assert len(figures) == 3
    for figure in figures:
        text = "".join(figure.itertext()).lower()
        assert "simulated" in text
        (svg,) = [e for e in figure.iter() if e.tag.endswith("svg")]
        assert svg.attrib["role"] == "img"
        assert "imulated" in svg.attrib["aria-label"]


def test_what_others_wrote_is_text_and_not_markup() -> None:
    html = report_html(outcome())
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=60))
def test_no_text_breaks_the_form(text: str) -> None:
    told = outcome()
    parsed(report_html(replace(told, lines=(Line(at(1), text, text, text),))))


def test_evidence_timelines_and_explanations_are_there() -> None:
    html = report_html(outcome())
    for piece in ("run r1-3", "412.5 TFLOP/s, floor 500", "at most 0.0004", "INC-00042"):
        assert piece in html
    assert "Simulated timeline of node-02" in html
    assert "Simulated timeline of node-03" in html
    assert "Simulated timeline of node-01" not in html


def test_a_story_that_did_not_settle_says_so() -> None:
    html = report_html(replace(outcome(), stuck=("node-02: Repairing.",)))
    assert "did not settle" in html
    assert "node-02: Repairing." in html


def test_the_bars_of_the_waterfall_add_up() -> None:
    told = outcome()
    svg = ElementTree.fromstring(waterfall_svg(told.goodput, "t"))
    widths = [float(e.attrib["width"]) for e in svg.iter() if e.tag.endswith("rect")]
    assert abs(widths[0] - sum(widths[1:])) <= len(widths) * 1.1


def test_a_timeline_fills_its_lane() -> None:
    told = outcome()
    ledger = build(told.records, T0, at(240))
    spans = [s for s in ledger.spans if s.node == "node-02"]
    svg = ElementTree.fromstring(timeline_svg("node-02", spans, ledger.start_us, ledger.end_us))
    widths = [float(e.attrib["width"]) for e in svg.iter() if e.tag.endswith("rect")]
    assert abs(sum(widths) - 960) <= len(widths)


def test_an_empty_window_still_draws() -> None:
    ElementTree.fromstring(waterfall_svg(goodput_values([], T0, T0), "t", alone=True))
