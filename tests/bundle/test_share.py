"""Bundles in a registry: whole ones go out, whole ones come in, nothing is left when something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.configure.bundles import build as bundles
from muster.configure.bundles import sharing
from muster.configure.bundles.build import Deployer
from muster.configure.registry import artifacts as registry
from muster.errors import BadInputError, NotSatisfiedError, UnreachableError
from tests.bundle.cases import bundle_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "bundle"
    bundles.write(target, bundle_of("h100-any", Deployer.HELM)[1])
    return target


def test_a_changed_bundle_is_refused_before_the_registry_is_asked(folder: Path) -> None:
    (folder / "README.md").write_text("x")
    with pytest.raises(NotSatisfiedError, match=r"README\.md was changed"):
        sharing.push(folder, "oci://127.0.0.1:1/bundles/x:v1")


def test_nobody_there(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        sharing.push(folder, "oci://127.0.0.1:1/bundles/x:v1", plain_http=True)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        sharing.pull("oci://127.0.0.1:1/bundles/x:v1", tmp_path / "new", plain_http=True)
    assert [p.name for p in tmp_path.iterdir()] == ["bundle"]


def test_what_is_in_the_way_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="holds a bundle already; give another folder"):
        sharing.pull("oci://127.0.0.1:1/bundles/x:v1", folder)
    with pytest.raises(BadInputError, match="does not exist"):
        sharing.pull("oci://127.0.0.1:1/bundles/x:v1", tmp_path / "no" / "where")


def test_what_was_pulled_must_be_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(reference: str, folder: Path, **_: object) -> str:
        bundles.write(folder, bundle_of("h100-any", Deployer.HELM)[1])
        (folder / "extra").write_text("")
        return "sha256:0"

    monkeypatch.setattr(registry, "pull_folder", pull)
    with pytest.raises(
        NotSatisfiedError, match="holds no whole bundle: extra is not part of the bundle new"
    ) as caught:
        sharing.pull("oci://r.example/x:v1", tmp_path / "new")
    assert str(tmp_path) not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real_program
def test_there_and_back(folder: Path, tmp_path: Path, oci_registry: str) -> None:
    reference = f"oci://{oci_registry}/bundles/h100:v1"
    digest = sharing.push(folder, reference, plain_http=True)
    assert sharing.push(folder, reference, plain_http=True) == digest
    back, count = sharing.pull(reference, tmp_path / "back", plain_http=True)
    assert (back, count) == (digest, bundles.verify(folder)[0])
    assert bundles.verify(tmp_path / "back") == bundles.verify(folder)
    assert (tmp_path / "back" / "deploy.sh").stat().st_mode & 0o111
    pinned = f"oci://{oci_registry}/bundles/h100@{digest}"
    assert sharing.pull(pinned, tmp_path / "pinned", plain_http=True, require_digest=True)[0] == digest
    with pytest.raises(BadInputError, match=digest):
        sharing.pull(reference, tmp_path / "none", plain_http=True, require_digest=True)
    with pytest.raises(BadInputError):
        sharing.pull(f"oci://{oci_registry}/bundles/h100:v2", tmp_path / "none", plain_http=True)
    assert not (tmp_path / "none").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "bundle", "pinned"]
