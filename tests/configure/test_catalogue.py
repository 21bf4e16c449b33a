"""The catalogue: compiled form up to date, complete, and mended errors named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from muster.configure import catalogue as catalogues
from muster.configure.catalogue import SourceKind, data_folder, load
from muster.configure.catalogue_page import page
from muster.configure.compile import compiled, read_sources
from muster.configure.criteria import VOCABULARY, Dimension
from muster.errors import BadInputError


def test_compiled_form_is_up_to_date() -> None:
    stored = (data_folder() / "catalogue.json").read_bytes()
    assert stored == compiled(), "run: python -m muster.configure.compile"
    assert load() == read_sources(data_folder())


def test_the_reference_page_is_up_to_date() -> None:
    stored = Path(__file__).parents[2] / "docs" / "reference" / "catalogue.md"
    assert stored.read_text() == page(load()), f"run: python -m muster.configure.catalogue_page {stored}"


def test_every_component_states_where_its_pin_comes_from() -> None:
    for component in load().components.values():
        assert component.pin.source, component.name
        assert component.pin.date, component.name
        if component.source.kind is SourceKind.HELM and not component.unavailable:
            assert component.source.version, component.name
            assert component.source.repository, component.name
        assert component.namespace or component.unavailable, component.name


def test_counts() -> None:
    catalogue = load()
    assert len([c for c in catalogue.components.values() if not c.unavailable]) == 51
    assert len(catalogue.overlays) == 125


def _copy(tmp_path: Path) -> Path:
    shutil.copytree(data_folder(), tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("overlays/eks.yaml", "base: base", "base: nowhere", "nowhere"),
        ("overlays/eks.yaml", "base: base", "base: eks-training", "circle"),
        ("overlays/eks.yaml", "  aws-efa: {}", "  aws-efaa: {}", "aws-efaa"),
        ("overlays/eks.yaml", "kubernetes.version", "kubernetes.versio", "did you mean"),
        ("overlays/eks.yaml", "'>= 1.28'", "'about 1.28'", "Overlay 'eks', constraint"),
        ("overlays/eks.yaml", "criteria:", "kriteria:", "kriteria"),
        ("overlays/eks.yaml", "name: eks", "name: eks\nname: eks", "duplicate key"),
        ("overlays/eks.yaml", "  aws-efa: {}", "  aws-efa: {}\n  aws-efa: {}", "duplicate key"),
        ("overlays/eks.yaml", "service: eks", "servce: eks", "did you mean 'service'"),
        ("overlays/eks.yaml", "name: eks", "name: xks", "xks"),
        ("overlays/eks-inference.yaml", "- platform-inference", "- platform-x", "platform-x"),
        ("overlays/aks.yaml", "default: azure-managed", "default: x", "'x'"),
        ("overlays/aks.yaml", "nvidiaDriverRoot: /run/nvidia/driver", "other: 1", "same paths"),
    ],
)
def test_a_broken_catalogue_is_refused(tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    folder = _copy(tmp_path)
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    with pytest.raises(BadInputError, match=message):
        read_sources(folder)


def test_every_criterion_is_in_the_vocabulary() -> None:
    """A layer may open a vocabulary; in the built-in catalogue a value outside it is a slip of the pen."""
    stated = {(d, v) for overlay in load().overlays.values() for d, v in overlay.criteria.items()}
    assert stated <= {(d.value, v) for d in Dimension for v in VOCABULARY[d]}
    assert load().vocabularies == {}
    assert all(load().vocabulary(d) == VOCABULARY[d] == tuple(sorted(VOCABULARY[d])) for d in Dimension)


def test_a_long_chain_is_refused(tmp_path: Path) -> None:
    folder = _copy(tmp_path)
    for n in range(30):
        text = f"name: link-{n}\nbase: {f'link-{n - 1}' if n else 'base'}\ncriteria: {{service: eks}}\n"
        (folder / "overlays" / f"link-{n}.yaml").write_text(text)
    with pytest.raises(BadInputError, match="more than 20 ancestors"):
        read_sources(folder)


def test_the_digest_depends_on_the_content(tmp_path: Path) -> None:
    folder = _copy(tmp_path)
    path = folder / "components" / "nfd.yaml"
    path.write_text(path.read_text().replace("0.19.0", "0.19.1"))
    changed = read_sources(folder)
    assert changed.digest != load().digest
    assert catalogues.load() is load()


@pytest.mark.parametrize(
    ("text", "ambiguous"),
    [
        ("> 1.30", "> 1.30"),
        (">= 1.28 <= 1.34", "<= 1.34"),
        ("!=v1.30", "!=v1.30"),
        ("=1.30", "=1.30"),
        (">= 1.28 || 1.25", "1.25"),
        (">= 1.28-0", None),
        (">= 1.28, < 1.36", None),
        ("~1.30", None),
        ("^1", None),
        ("1.x", None),
        ("> 1.30.0 != 1.31.2", None),
    ],
)
def test_a_kube_version_that_helm_reads_in_another_way_is_refused(
    text: str, ambiguous: str | None, tmp_path: Path
) -> None:
    """To Helm `> 1.30` is above every 1.30, to Muster above 1.30.0: what the chart refuses must not pass."""
    folder = _copy(tmp_path)
    path = folder / "components" / "nfd.yaml"
    path.write_text(f"{path.read_text()}\nkubeVersion: '{text}'\n")
    if ambiguous is None:
        assert read_sources(folder).components["nfd"].kube_version == text
        return
    with pytest.raises(BadInputError, match="all three numbers") as caught:
        read_sources(folder)
    assert repr(ambiguous) in str(caught.value)
    assert "nfd" in str(caught.value)
