"""Value paths that a chart knows, and the nearest one where it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import yamlio
from muster.configure.catalogue import data_folder, load
from muster.configure.known_paths import KnownPaths, known_paths
from muster.configure.values import parse_path

RECORDED = sorted(path.stem for path in (data_folder() / "value_paths").glob("*.yaml"))


def of(component: str) -> KnownPaths:
    known = known_paths(component)
    assert known is not None
    return known


@pytest.mark.parametrize(
    ("component", "path", "expected"),
    [
        ("gpu-operator", "driver.version", None),
        ("gpu-operator", "driver", None),
        ("gpu-operator", "driver.versoin", "driver.version"),
        ("gpu-operator", "drivr.version", "driver.version"),
        ("gpu-operator", "devicePlugin.env[0].value", None),
        ("gpu-operator", "driver.version.minor", ""),
        ("gpu-operator", "nothing.like.it", ""),
        ("gpu-operator", "operator.nodeSelector.any\\.label/at-all", None),
        ("gpu-operator", "node-feature-discovery.master.extraLabelNs", None),
        ("cert-manager", "crds.enable", "crds.enabled"),
        ("nfd", "topologyUpdater.createCRDs", None),
        ("nfd", "createCRDs", "topologyUpdater.createCRDs"),
        ("kueue", "quotas.gpu", None),
        ("nodewright-customizations", "tuningEnable", "tuningEnabled"),
    ],
)
def test_unknown(component: str, path: str, expected: str | None) -> None:
    assert of(component).unknown(parse_path(path)) == expected


def test_a_component_that_nobody_read_is_not_recorded() -> None:
    assert known_paths("kube-prometheus-stack") is None
    assert known_paths("../components/nfd") is None


@pytest.mark.parametrize("component", RECORDED)
def test_each_file_names_its_source_and_every_path_in_it_is_known(component: str) -> None:
    assert component in load().components
    known = of(component)
    assert len(known.source) > 10
    assert known.version
    assert known.date >= "2021-01"
    raw = yamlio.load(data_folder() / "value_paths" / f"{component}.yaml")
    for text in (*raw.get("open", ()), *raw.get("paths", ()), *raw.get("manifests", ())):
        assert known.unknown(parse_path(text)) is None, text
    for text in raw.get("open", ()):
        assert known.unknown((*parse_path(text), "anything", "below")) is None, text
    assert list(raw.get("open", ())) == sorted(raw.get("open", ()))
    assert list(raw.get("paths", ())) == sorted(raw.get("paths", ()))


@given(st.sampled_from([c for c in RECORDED if of(c).paths()]), st.data())
def test_a_suggestion_is_a_known_path(component: str, data: st.DataObject) -> None:
    """Whatever is misspelt, what is suggested exists; a known path is never called unknown."""
    known = of(component)
    path = data.draw(st.sampled_from(known.paths()))
    assert known.unknown(path) is None
    at = data.draw(st.integers(0, len(path) - 1))
    misspelt = (*path[:at], path[at] + data.draw(st.sampled_from(["s", "x", "_", "Q"])), *path[at + 1 :])
    suggestion = known.unknown(misspelt)
    assert suggestion is None or suggestion == "" or known.unknown(parse_path(suggestion)) is None


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8))
def test_no_path_breaks_it(path: list[str]) -> None:
    assert of("gpu-operator").unknown(tuple(path)) is None or isinstance(of("gpu-operator").unknown(tuple(path)), str)
