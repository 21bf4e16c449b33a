"""HTML, JSON, JUnit and text: well-formed whatever others wrote, complete, and without anything from outside."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any
from xml.etree import ElementTree

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.certify.report import svg
from muster.certify.report.build import build
from muster.certify.report.html import html
from muster.certify.report.json_ import SCHEMA_FILE, json_text, schema, schema_text
from muster.certify.report.junit import junit
from muster.certify.report.model import Curve, CurvePoint, Matrix, MatrixCell, ReportModel
from muster.certify.report.text import text
from muster.resources.certification import Certification, NodeVerdict, Phase, Reason
from tests.certify.report_samples import HOSTILE, Fleet, certification

SICK = Fleet(bad=("gpu-0003",), slow=("gpu-0010",), links=(("gpu-0006", "gpu-0013"),), untested=("gpu-0001",))
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60)


def sick() -> ReportModel:
    return build(*certification(SICK, parts=2))


def parsed(page: str) -> ElementTree.Element:
    return ElementTree.fromstring(page.split("\n", 1)[1])


def words(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


# HTML


def test_the_page_is_well_formed_and_refers_to_nothing_outside() -> None:
    page = html(sick())
    for element in parsed(page).iter():
        assert not element.tag.endswith(("}script", "}link", "}img", "}iframe", "}object"))
        assert not set(element.attrib) & {"src", "href", "onload", "onclick", "action"}
    assert re.findall(r"https?://[^\"<\s]+", page) == ["http://www.w3.org/1999/xhtml"]
    assert "url(" not in page
    assert "@import" not in page


def test_every_section_is_there() -> None:
    titles = [words(e) for e in parsed(html(sick())).iter() if e.tag.endswith("}h2")]
    assert titles == [
        "What to do",
        "Failed nodes (2)",
        "Links, rails and trunks (1)",
        "Untested nodes (1)",
        "Tests",
        "Pairs: pair",
        "Bandwidth by message size",
        "Goodput",
        "Cost",
        "Passed nodes (13)",
        f"Runs ({len(sick().runs)})",
        "Software",
        "Provenance",
    ]


def test_what_is_wrong_is_visible_without_unfolding_anything() -> None:
    page = html(sick())
    unfolded = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    for piece in ("gpu-0003", "gpu-0010", "gpu-0006 - gpu-0013", "gpu-0001", "net plugin timed out", "not Ready"):
        assert piece in unfolded


def test_digests_seed_and_versions_say_where_it_comes_from() -> None:
    page = html(sick())
    for piece in ("seed 7", "sha256:", "2.27.3", "580.65.06", "11111111-2222"):
        assert piece in page


def hostile(made: Certification, told: str) -> Certification:
    """`told` in every place that others write."""
    status = made.status
    runs = tuple(msgspec.structs.replace(r, message=told, transport=told, unit=told) for r in status.runs)
    nodes = tuple(
        msgspec.structs.replace(n, message=told, metrics={told: 1.0}, verdict=NodeVerdict.FAILED, reason=Reason.CRASH)
        for n in status.nodes
    )
    links = tuple(msgspec.structs.replace(link, a=told, message=told) for link in status.links)
    return msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(made.metadata, name=told, uid=told),
        spec=msgspec.structs.replace(made.spec, expected_transport=told, node_selector={told: told}),
        status=msgspec.structs.replace(
            status, runs=runs, nodes=nodes, links=links, message=told, blocked=told, phase=Phase.FAILED
        ),
    )


def test_what_others_wrote_is_text_and_not_markup() -> None:
    made, _ = certification(SICK)
    report = build(hostile(made, HOSTILE))
    page = html(report)
    parsed(page)
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    for shown in (page, text(report), junit(report)):
        assert "\x1b" not in shown
        assert "\x00" not in shown
    ElementTree.fromstring(junit(report))
    json.loads(json_text(report))


VALIDATOR = jsonschema.Draft202012Validator(schema())


@settings(max_examples=40)
@given(ANY_TEXT)
def test_no_text_breaks_any_form(told: str) -> None:
    made, _ = certification(Fleet(nodes=4, domains=1, bad=("gpu-0003",), tests=("pair",)))
    report = build(hostile(made, told))
    parsed(html(report))
    ElementTree.fromstring(junit(report))
    VALIDATOR.validate(json.loads(json_text(report)))
    assert all(line.isprintable() for line in text(report).split("\n"))


def test_a_thousand_nodes_stay_readable() -> None:
    names = tuple(f"gpu-{i:04d}" for i in range(1024))
    big = Fleet(names=names, nodes=1024, bad=tuple(names[::9]), domains=128, tests=("host", "gpu-burn", "pair"))
    made, _ = certification(big)
    report = build(made)
    page = html(report)
    root = parsed(page)
    assert len(page) < 6_000_000
    failed = sum(node.verdict == "Failed" for node in report.nodes)
    assert failed >= 100
    unfolded = re.sub(r"<details>.*</details>", "", page, flags=re.DOTALL)
    assert unfolded.count("<h3>") <= 60
    for name in names:
        assert name in page
    (matrix,) = report.matrices
    assert len(matrix.labels) <= 64
    assert matrix.grouped_by in ("domain", "block")
    rectangles = [e for e in root.iter() if e.tag.endswith("}rect")]
    assert len(rectangles) <= 64 * 64 + 200


# Figures


@given(
    st.lists(
        st.tuples(
            st.integers(1, 2**40),
            st.floats(0, 1e5, allow_nan=False),
            st.floats(0, 1e5, allow_nan=False),
            st.integers(0, 3),
        ),
        max_size=12,
    ),
    st.one_of(st.none(), st.floats(0.001, 1e5)),
)
def test_every_curve_draws_inside_its_frame(lines: list[tuple[int, float, float, int]], floor: float | None) -> None:
    points = tuple(
        CurvePoint(
            size_bytes=size,
            median_gb_per_s=(a + b) / 2,
            least_gb_per_s=min(a, b),
            most_gb_per_s=max(a, b),
            runs=1,
            wrong=wrong,
        )
        for size, a, b, wrong in sorted(lines)
    )
    drawn = ElementTree.fromstring(svg.bandwidth(Curve(test="pair", nodes=2, floor=floor, points=points)))
    height = float(drawn.attrib["viewBox"].split()[3])
    for element in drawn.iter():
        for key in ("x", "cx", "x1", "x2"):
            assert -1 <= float(element.attrib.get(key, 0)) <= svg.WIDTH + 1
        for key in ("y", "cy", "y1", "y2"):
            assert -1 <= float(element.attrib.get(key, 0)) <= height + 1


def test_each_kind_of_cell_differs_without_its_colour() -> None:
    looks = [
        svg.cell_look(MatrixCell(row=0, column=1, passed=p, failed=f, unusable=u, ratio=r))
        for p, f, u, r in ((1, 0, 0, 1.0), (0, 1, 0, None), (1, 1, 0, 1.0), (0, 0, 1, None), (1, 0, 0, 0.7))
    ]
    assert [letter for _, letter in looks] == ["", "F", "f", "?", "s"]


def test_the_heat_map_says_what_each_cell_holds() -> None:
    matrix = Matrix(
        test="pair",
        labels=("a", "b<c"),
        unit="GB/s",
        cells=(MatrixCell(row=0, column=1, passed=2, failed=1, ratio=0.5),),
    )
    drawn = ElementTree.fromstring(svg.heat_map(matrix))
    titles = [e.text for e in drawn.iter() if e.tag.endswith("title")]
    assert titles.count("a - b<c: 2 passed, 1 failed, 0 unusable, 50% of the median") == 2


def test_sizes_read_as_people_write_them() -> None:
    assert [svg.bytes_text(n) for n in (1, 1024, 1536, 2**20, 2**33, 2**45)] == [
        "1 B",
        "1 KiB",
        "1.5 KiB",
        "1 MiB",
        "8 GiB",
        "32 TiB",
    ]


# JSON


def test_the_report_keeps_to_the_schema_that_is_shipped() -> None:
    shipped = resources.files("muster.certify").joinpath("data", SCHEMA_FILE).read_text()
    assert shipped == schema_text(), f"write it again: python -m muster.certify.report.json_ > {SCHEMA_FILE}"
    validator = jsonschema.Draft202012Validator(json.loads(shipped))
    validator.check_schema(json.loads(shipped))
    for made, parts in (certification(SICK, parts=2), certification(Fleet()), certification(SICK, rounds=2)):
        validator.validate(json.loads(json_text(build(made, parts))))


@pytest.mark.parametrize(
    "change",
    [{"passed": "yes"}, {"surprise": 1}, {"nodes": [{"name": "n1"}]}, {"cost": None}],
)
def test_the_schema_refuses_what_is_no_report(change: dict[str, Any]) -> None:
    content = {**json.loads(json_text(sick())), **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema())


def test_a_field_that_is_missing_is_refused() -> None:
    content = json.loads(json_text(sick()))
    del content["nodes"][0]["errorBound"]
    with pytest.raises(jsonschema.ValidationError, match="errorBound"):
        jsonschema.validate(content, schema())


def test_the_same_certification_gives_the_same_bytes() -> None:
    assert json_text(sick()) == json_text(sick())
    assert html(sick()) == html(sick())
    assert junit(sick()) == junit(sick())


def test_units_are_what_they_say() -> None:
    """GB/s is gigabytes: no field of the report calls it gigabits."""
    told = schema_text().lower()
    assert "gbps" not in told
    assert "mediangbpers" in told
    point = sick().curves[0].points[-1]
    assert 100 < point.median_gb_per_s < 1000


def test_a_variant_that_nothing_asked_for_is_not_missing() -> None:
    """pair-net only follows a failure: without one it is neither run nor left out."""
    healthy = Fleet(tests=("host", "pair", "pair-net"))
    report = build(*certification(healthy))
    assert [t.name for t in report.tests] == ["host", "pair"]
    assert report.passed


# JUnit


def test_junit_is_red_for_everything_that_did_not_pass() -> None:
    report = sick()
    root = ElementTree.fromstring(junit(report))
    cases = {(c.attrib["classname"], c.attrib["name"]): c for c in root.iter("testcase")}
    for node in report.nodes:
        inside = [child.tag for child in cases["nodes", node.name]]
        expected = {"Passed": [], "Failed": ["failure"], "Undetermined": ["error"], "Untested": ["error"]}
        assert inside == expected[node.verdict]
    (failure,) = cases["nodes", "gpu-0003"]
    assert "net plugin timed out" in (failure.text or "")
    assert cases["paths", "gpu-0006 - gpu-0013"].find("failure") is not None
    assert cases["certification", "accept-1"].find("failure") is not None


def test_junit_counts_what_it_holds() -> None:
    root = ElementTree.fromstring(junit(sick()))
    for element in (root, *root.iter("testsuite")):
        for key, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(element.attrib[key]) == len(list(element.iter(tag)))


def test_junit_of_a_pass_is_green_and_of_a_run_under_way_is_not() -> None:
    green = ElementTree.fromstring(junit(build(*certification(Fleet()))))
    assert (green.attrib["failures"], green.attrib["errors"]) == ("0", "0")
    running = ElementTree.fromstring(junit(build(*certification(Fleet(), rounds=1))))
    assert int(running.attrib["errors"]) > 0


def test_a_test_that_was_left_out_is_skipped_by_name() -> None:
    made, _ = certification(Fleet())
    full = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, profile="full"))
    root = ElementTree.fromstring(junit(build(full)))
    skipped = {c.attrib["name"] for c in root.iter("testcase") if c.find("skipped") is not None}
    assert skipped == {"storage", "nic-loopback"}
    assert "storageClaim" in html(build(full))
