"""A bundle in a real OCI registry has the shape that Argo CD's repository server accepts."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.configure.bundles import build as bundles
from muster.configure.bundles import sharing
from muster.configure.bundles.build import Deployer
from muster.configure.render.repository import Repository, check_repository
from tests.bundle.cases import built
from tests.configure.cases import recipe_of

ACCEPTED = ("application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+gzip")
"""Argo CD 3.5: `--oci-layer-media-types` of its repository server by default, the type of Helm charts left out."""
HELM_CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = ("tar", "tar+gzip", "tar.gzip")


def get(url: str) -> bytes:
    accept = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=accept), timeout=20) as answer:
        content: bytes = answer.read()
    return content


@pytest.mark.parametrize("deployer", [Deployer.ARGOCD, Deployer.ARGOCD_HELM])
def test_a_pushed_bundle_is_a_source(oci_registry: str, deployer: Deployer, tmp_path: Path) -> None:
    name = f"clusters/{deployer.value}"
    repository = Repository(f"oci://{oci_registry}/{name}", "2026-09-01")
    check_repository(repository)
    _, files = built(recipe_of("h100-any"), deployer, repository=repository)
    bundles.write(tmp_path / "bundle", files)
    digest = sharing.push(tmp_path / "bundle", f"{repository.url}:{repository.revision}", plain_http=True)

    # What the objects in the bundle name is what lies in the registry.
    root = f"http://{oci_registry}/v2/{name}"
    content = get(f"{root}/manifests/{repository.revision}")
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    manifest: dict[str, Any] = json.loads(content)
    assert manifest["config"]["mediaType"] != HELM_CONFIG
    layers = [layer for layer in manifest["layers"] if layer["mediaType"].endswith(CONTENT)]
    assert len(layers) == 1
    assert layers[0]["mediaType"] in ACCEPTED

    blob = io.BytesIO(get(f"{root}/blobs/{layers[0]['digest']}"))
    with tarfile.open(fileobj=blob) as archive:
        found = {m.name.removeprefix("./"): m for m in archive.getmembers() if m.isfile()}
        assert sorted(found) == sorted(files)
        assert not any(m.issym() or m.islnk() for m in archive.getmembers())
        for path in sorted(p for p in files if p.startswith("applications/")):
            extracted = archive.extractfile(found[path])
            assert extracted is not None
            source = yamlio.loads(extracted.read(), path)["spec"]["source"]
            if "path" in source:
                assert f"{source['path']}/Chart.yaml" in found
