"""Label and field selectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sim.api_kinds import Registry
from muster.sim.api_status import StatusError
from muster.sim.selectors import field_matcher, from_label_selector, labels_match, parse_labels

LABELS = {"app": "web", "tier": "front", "muster.dev/state": "InService", "size": "4"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=db", True),
        ("missing!=x", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("app in (db,web)", True),
        ("app in (db, cache)", False),
        ("app notin (db)", True),
        ("missing notin (x)", True),
        ("app=web,tier=front", True),
        ("app=web,tier=back", False),
        ("muster.dev/state=InService,app in (web),!gone", True),
        ("app=", False),
        ("missing=", False),
        ("size>3", True),
        ("size<4", False),
        ("app>3", False),
        ("app in (web,),tier", True),
        ("missing in ()", False),
    ],
)
def test_label_selectors(selector: str, matches: bool) -> None:
    assert labels_match(parse_labels(selector), LABELS) is matches


@pytest.mark.parametrize("selector", ["a=b=c", "=x", "a in b", "a in (b", "-bad", "a=" + "x" * 64, ",", "a>x"])
def test_malformed_label_selectors(selector: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_labels(selector)
    assert caught.value.code == 400


@given(st.text(max_size=30))
def test_any_text_parses_or_is_refused(selector: str) -> None:
    try:
        matches = labels_match(parse_labels(selector), {})
    except StatusError as error:
        matches = error.code == 400
    assert matches in (True, False)


def test_label_selector_objects() -> None:
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["front"]},
            {"key": "x", "operator": "DoesNotExist"},
        ],
    }
    requirements = from_label_selector(selector)
    assert requirements is not None
    assert labels_match(requirements, LABELS)
    assert not labels_match(requirements, {**LABELS, "x": ""})
    assert from_label_selector({}) == ()
    assert from_label_selector(None) is None
    with pytest.raises(StatusError):
        from_label_selector({"matchExpressions": [{"key": "a", "operator": "Gt"}]})


PODS = Registry().find("", "v1", "pods")
POD = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("metadata.name=p", True),
        ("metadata.namespace=default,spec.nodeName=n1", True),
        ("spec.nodeName!=n1", False),
        ("status.phase=Running", True),
        ("spec.hostNetwork=false", True),
        ("spec.nodeName=", False),
    ],
)
def test_field_selectors(selector: str, matches: bool) -> None:
    matcher = field_matcher(selector, PODS)
    assert matcher is not None
    assert matcher(POD) is matches


def test_unsupported_field_labels_are_refused() -> None:
    with pytest.raises(StatusError) as caught:
        field_matcher("spec.image=x", PODS)
    assert caught.value.message == "field label not supported: spec.image"
