"""Charts inside the bundle: Helm renders just the objects that went in, whatever they are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import yamlio
from muster.configure.plan import Release, Role
from muster.configure.recipe import ManifestFile
from muster.configure.render.chart import local_chart, repository_alias
from tests.bundle.shell import Shell
from tests.configure.test_values import HOSTILE

NAMES = [
    "yes",
    "123",
    "null",
    "~",
    "0x1f",
    "1e3",
    "{{ .Values.a }}",
    "{{",
    "}}",
    "a: b",
    "- c",
    "#",
    "on",
    "1_000",
    "---",
]


def objects() -> list[dict[str, Any]]:
    """Objects with every hostile text as a name, a key and a value."""
    texts = [*NAMES, *HOSTILE, "a\n---\nkind: b\n", "tab\tx", "trailing \n", "\u2028", "{{- /* c */ -}}"]
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": text, "labels": {text or "empty": text}},
            "data": {text: text, "null": None, "list": [], "map": {}, "number": 1, "true": True},
        }
        for text in texts
    ]


def release(*files: list[dict[str, Any]] | None) -> Release:
    manifests = tuple(ManifestFile(name=f"m{at}.yaml", objects=o) for at, o in enumerate(files))
    return Release(
        name="local", component="c", role=Role.MAIN, namespace="n", values={"a": "filled in"}, manifests=manifests
    )


def chart_on_disk(folder: Path, wanted: Release) -> Path:
    for name, text in local_chart(wanted, "chart").items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "chart"


@pytest.fixture
def shell(tmp_path: Path, helm: Path) -> Shell:
    return Shell(tmp_path, helm.parent)


def test_the_real_helm_renders_what_went_in(shell: Shell) -> None:
    wanted = objects()
    chart = chart_on_disk(shell.home, release(wanted[:7], wanted[7:]))
    rendered = yamlio.loads_all(shell.ok("helm", "template", "local", str(chart)), "helm template")
    # Helm sorts by kind and name; the objects themselves are as they were.
    key = json.JSONEncoder(sort_keys=True).encode
    assert sorted(map(key, rendered)) == sorted(map(key, wanted))


def test_the_real_helm_finds_nothing_to_complain_about(shell: Shell) -> None:
    """Names that Kubernetes takes and YAML would read as something else."""
    named = [o for o in objects() if o["metadata"]["name"] in ("yes", "123", "null", "1e3", "on", "no", "0x1f")]
    assert len(named) >= 6
    chart = chart_on_disk(shell.home, release(named))
    output = shell.ok("helm", "lint", "--strict", str(chart))
    assert "0 chart(s) failed" in output
    assert "WARNING" not in output


def test_a_missing_manifest_refuses_to_render(shell: Shell) -> None:
    chart = chart_on_disk(shell.home, release(objects()[:1], None))
    code, output = shell.run("helm", "template", "local", str(chart))
    assert code != 0
    assert "manifests not supplied: c/m1.yaml; build the bundle again with --manifest NAME=FILE" in output


def test_a_chart_without_objects_is_a_chart(shell: Shell) -> None:
    chart = chart_on_disk(shell.home, release([]))
    assert shell.ok("helm", "template", "local", str(chart)).strip() == ""


_SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=20)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.lists(st.dictionaries(st.text(max_size=8), _VALUES, max_size=4), max_size=4))
def test_files_of_a_chart_read_back(documents: list[dict[str, Any]]) -> None:
    files = local_chart(release(documents), "chart")
    assert [d for d in yamlio.loads_all(files["chart/manifests/01-m0.yaml"], "m") if d is not None] == documents
    # Helm cuts a stream at lines that begin with three dashes; only ours may.
    cuts = [line for line in files["chart/manifests/01-m0.yaml"].splitlines() if line.startswith("---")]
    assert len(cuts) == len(documents)


@given(
    st.lists(
        st.from_regex(r"(https|oci)://[A-Za-z0-9.-]{1,60}(:[0-9]{1,5})?(/[A-Za-z0-9._~-]{0,40}){0,3}", fullmatch=True)
    )
)
def test_aliases_are_labels_and_differ(addresses: list[str]) -> None:
    import re

    distinct = {address.rstrip("/") for address in addresses}
    aliases = {repository_alias(address) for address in addresses}
    assert len(aliases) == len(distinct)
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", alias) for alias in aliases)
