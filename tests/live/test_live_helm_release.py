"""Helm's records: read as Helm writes them, refused in one sentence when they are not."""

from __future__ import annotations

import base64
import gzip
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.live import helm_release
from muster.configure.live.helm_release import crd_names, decode_release, revision_of
from muster.configure.live.manifest import owned_objects
from muster.errors import BadInputError
from tests.live.bed import release_secret

CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    name: not.this.one
  name: {name}
spec:
  names:
    kind: X
"""


def secret_of(inner: bytes) -> dict[str, Any]:
    packed = base64.b64encode(base64.b64encode(inner)).decode()
    return {"metadata": {"name": "sh.helm.release.v1.x.v1", "namespace": "ns"}, "data": {"release": packed}}


def test_a_record_is_read_whole() -> None:
    values = {"a": None, "b": [], "c": {"d": 1.5}, "e": "1.30"}
    secret = release_secret(
        "op",
        "gpu",
        chart="gpu-operator",
        version="v26.7.0",
        revision=3,
        status="failed",
        values=values,
        manifest="---\nkind: A\n",
        files={"crds/a.yaml": CRD.format(name="as.example.com"), "README.md": CRD.format(name="bs.example.com")},
        description="it broke",
    )
    found = decode_release(secret)
    assert (found.name, found.namespace, found.revision, found.status) == ("op", "gpu", 3, "failed")
    assert (found.chart, found.chart_version, found.app_version) == ("gpu-operator", "v26.7.0", "9")
    assert found.values == values
    assert found.description == "it broke"
    assert found.crds == ("as.example.com",)


def test_an_old_record_without_gzip_and_without_values_is_read() -> None:
    record = {"name": "x", "version": 1, "info": {"status": "deployed"}, "chart": None, "config": None}
    found = decode_release(secret_of(json.dumps(record).encode()))
    assert found.values == {}
    assert found.namespace == "ns"


@pytest.mark.parametrize(
    "secret",
    [
        {},
        {"metadata": {"name": "x"}, "data": {}},
        {"metadata": {"name": "x"}, "data": {"release": ""}},
        {"metadata": {"name": "x"}, "data": {"release": 5}},
        {"metadata": {"name": "x"}, "data": {"release": "no base64!"}},
        {"metadata": None, "data": {"release": base64.b64encode(b"not twice").decode()}},
        secret_of(b"no json"),
        secret_of(b"[]"),
        secret_of(b'{"version": 1}'),
        secret_of(gzip.compress(b'{"name":"x"}')[:-9]),
        secret_of(b"\x1f\x8bgarbage"),
        secret_of(b"[" * 100_000),
        secret_of(json.dumps({"name": "x", "config": []}).encode()),
    ],
)
def test_what_is_no_record_is_refused_in_one_sentence(secret: dict[str, Any]) -> None:
    with pytest.raises(BadInputError) as refused:
        decode_release(secret)
    assert "\n" not in str(refused.value)


def test_a_record_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helm_release, "MAX_RECORD_BYTES", 1000)
    bomb = secret_of(gzip.compress(b'{"name":"x","manifest":"' + b"a" * 100_000 + b'"}'))
    with pytest.raises(BadInputError, match="unpacks to more"):
        decode_release(bomb)


@given(st.binary(max_size=200))
def test_no_bytes_make_it_crash(data: bytes) -> None:
    for secret in (secret_of(data), {"data": {"release": data.decode("latin-1")}}):
        with suppress(BadInputError):
            assert decode_release(secret).name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sh.helm.release.v1.gpu-operator.v12", ("gpu-operator", 12)),
        ("sh.helm.release.v1.a.v1.v2", ("a.v1", 2)),
        ("sh.helm.release.v1.a", None),
        ("other.v1", None),
    ],
)
def test_the_revision_stands_in_the_name(name: str, expected: tuple[str, int] | None) -> None:
    assert revision_of(name) == expected


def test_names_of_crds_are_those_of_the_objects() -> None:
    text = (
        f"# top\n---\n{CRD.format(name='as.example.com')}\n---\nkind: Other\nmetadata:\n  name: x.y\n---\n"
        + CRD.format(name="'bs.example.com'")
    )
    assert crd_names(text) == ["as.example.com", "bs.example.com"]


MANIFEST = """\
---
# Source: a/templates/x.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  labels: {app: x}
  name: "full-name"
  namespace: elsewhere
spec:
  replicas: 3
---
apiVersion: v1
kind: ConfigMap
metadata:
  # a comment
  labels:
    name: not-this
    namespace: not-this
  name: 'quoted'   # why
data:
  script: |
    kind: Nothing
---
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  ttlSecondsAfterFinished: 0
---
apiVersion: v1
kind: Service
metadata:
  labels: {a: 1}
  labels: {b: 2}
  name: twice
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: broken
spec: {a: [}
---
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata:
  name: cluster-policy
"""


def test_owned_objects_are_found_in_tidy_and_untidy_yaml() -> None:
    found = {(o.group, o.kind, o.namespace, o.name): o for o in owned_objects(MANIFEST, ("as.example.com",))}
    assert list(found) == [
        ("apps", "Deployment", "elsewhere", "full-name"),
        ("", "ConfigMap", "", "quoted"),
        ("batch", "Job", "", "j"),
        ("", "Service", "", "twice"),
        ("apps", "DaemonSet", "", "broken"),
        ("nvidia.com", "ClusterPolicy", "", "cluster-policy"),
        ("apiextensions.k8s.io", "CustomResourceDefinition", "", "as.example.com"),
    ]
    assert found["apps", "Deployment", "elsewhere", "full-name"].replicas == 3
    assert found["batch", "Job", "", "j"].expires


@given(st.text(max_size=300))
def test_no_manifest_makes_it_crash(text: str) -> None:
    for manifest in (text, f"kind: Deployment\n{text}", f"apiVersion: v1\nkind: X\nmetadata:\n  name: {text}\n"):
        assert all(owned.name and owned.kind for owned in owned_objects(manifest))
