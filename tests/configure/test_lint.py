"""Lints of values and of whole catalogues."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.configure.catalogue import Catalogue, Checks, Manifests, Mixin, Overlay, Patch, Source, SourceKind, load
from muster.configure.catalogue_check import check_catalogue
from muster.configure.known_paths import known_paths
from muster.configure.lint import Rule, Severity, lint_catalogue, lint_values
from muster.configure.values import Path
from muster.errors import BadInputError
from tests.configure.layer_cases import chart, config_map, small_catalogue


def test_the_shipped_catalogue_has_nothing_to_mend() -> None:
    check_catalogue(load())
    assert [f for f in lint_catalogue(load(), known_paths) if f.severity is Severity.ERROR] == []


def test_the_small_catalogue_is_clean() -> None:
    check_catalogue(small_catalogue())
    assert lint_catalogue(small_catalogue()) == ()


@pytest.mark.parametrize(
    "values",
    [
        {"adminPassword": "hunter2"},
        {"a": [{"token": "abc"}]},
        {"env": [{"name": "NGC_API_KEY", "value": "abc"}]},
        {"text": "-----BEGIN RSA PRIVATE KEY-----"},
        {"text": "key AKIA" + "A" * 16},
        {"url": "https://user:pass@example.com/x"},
        {"key": "nvapi-" + "x" * 30},
        {"clientSecret": "x"},
        {"grafana": {"adminPassword": 123456}},
        {"db": {"pwd": "x"}},
        {"smtp_pass": "x", "n": 1},
        {"db_password": "x"},
        {"tokenPassword": "x"},
        {"licenseKey": "x"},
        {"imagePullSecret": {".dockerconfigjson": "eyJhdXRocyI6e319"}},
        {"args": ["--listen=:8080", "--password=hunter2"]},
        {"headers": {"authorization": "Bearer 0123456789abcdef0123"}},
        {"jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"},
        {"url": "https://hooks.slack.com/services/T00000000/B00000000/abcdefghij"},
    ],
)
def test_a_secret_written_out_is_found(values: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="a secret written out"):
        lint_values("c", values, "test")


@pytest.mark.parametrize(
    "values",
    [
        {"existingSecret": "name", "passwordKey": "password", "tokenTTL": "1h", "secretName": "x"},
        {"password": ""},
        {"password": None},
        {"env": [{"name": "TOKEN_PATH", "value": "/x"}, {"name": "MODE", "value": "x"}]},
        {"env": [{"name": "PASSWORD", "value": "$(DB_PASSWORD)"}]},
        {"env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "a", "key": "password"}}}]},
        {"url": "https://example.com:8080/a@b"},
        {"args": ["--token=$(TOKEN)", "--password-file=/x"], "generatePassword": "true"},
        {"maxTokens": 4096, "tokenTTL": 3600, "bypass": "x", "license": "Apache-2.0"},
    ],
)
def test_a_reference_to_a_secret_is_none(values: dict[str, Any]) -> None:
    lint_values("c", values, "test")
    assert values


@pytest.mark.parametrize(
    "values",
    [
        {"tag": "latest"},
        {"image": "nginx:main"},
        {"imageTag": "Nightly"},
        {"driver": {"version": "latest"}},
        {"tag": "stable"},
        {"image": {"repository": "a/b:latest"}},
        {"images": ["a:1.0", "reg.example.com:5000/b:edge"]},
    ],
)
def test_a_floating_tag_is_found(values: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="moves"):
        lint_values("c", values, "test")


def _with(**changes: Any) -> Catalogue:
    """The small catalogue with entries replaced or added, by room."""
    base = small_catalogue()
    return msgspec.structs.replace(base, **{room: {**getattr(base, room), **new} for room, new in changes.items()})


def _agent(**fields: Any) -> Catalogue:
    return _with(components={"agent": chart("agent", **fields)})


def _source(**fields: Any) -> Catalogue:
    made = {"kind": SourceKind.HELM, "repository": "https://c.example.com", "chart": "agent", "version": "1.0.0"}
    return _agent(source=Source(**(made | fields)))


def _eks(**fields: Any) -> Catalogue:
    return _with(overlays={"eks": msgspec.structs.replace(small_catalogue().overlays["eks"], **fields)})


def _patched(**fields: Any) -> Catalogue:
    return _eks(components={"agent": Patch(**fields)})


CASES = {
    "secret in a component": (_agent(values={"password": "x"}), Rule.SECRET, "components/agent.yaml"),
    "secret in an overlay": (_patched(values={"password": "x"}), Rule.SECRET, "overlays/eks.yaml"),
    "secret as manifest": (
        _with(manifests={"store/claim.yaml": [{**config_map("a", {"k": "x"}), "kind": "Secret"}]}),
        Rule.SECRET,
        "manifests/store/claim.yaml",
    ),
    "image without tag": (
        _with(manifests={"store/claim.yaml": [{"kind": "Pod", "spec": {"containers": [{"image": "a/b"}]}}]}),
        Rule.FLOATING,
        "manifests/store/claim.yaml",
    ),
    "floating chart": (_source(version="latest"), Rule.FLOATING, "components/agent.yaml"),
    "range as chart version": (_source(version=">= 1.2"), Rule.FLOATING, "components/agent.yaml"),
    "no version": (_source(version=""), Rule.SOURCE, "components/agent.yaml"),
    "no repository": (_source(repository=""), Rule.SOURCE, "components/agent.yaml"),
    "tag in the repository": (
        _source(repository="oci://r.example.com/x:1.0.0"),
        Rule.SOURCE,
        "components/agent.yaml",
    ),
    "manifests and a chart": (_source(kind=SourceKind.MANIFESTS), Rule.SOURCE, "components/agent.yaml"),
    "pin that repeats": (_patched(version="1.0.0", version_reason="why"), Rule.PIN, "overlays/eks.yaml"),
    "floating pin": (_patched(version="2.x", version_reason="why"), Rule.FLOATING, "overlays/eks.yaml"),
    "depends on itself": (_patched(depends_on=("agent",)), Rule.TWICE, "overlays/eks.yaml"),
    "edge twice": (_patched(depends_on=("store", "store")), Rule.TWICE, "overlays/eks.yaml"),
    "manifest twice": (_patched(manifests=Manifests(pre=("a.yaml", "a.yaml"))), Rule.TWICE, "overlays/eks.yaml"),
    "mixin twice": (_eks(mixins=("logs", "logs")), Rule.TWICE, "overlays/eks.yaml"),
    "check twice": (_eks(checks={"deployment": Checks(checks=("a", "a"))}), Rule.TWICE, "overlays/eks.yaml"),
    "alias twice": (_agent(aliases=("a", "a")), Rule.TWICE, "components/agent.yaml"),
    "no criteria": (_with(overlays={"all": Overlay(name="all", base="base")}), Rule.EVERYWHERE, "overlays/all.yaml"),
    "mixin of nobody": (_with(mixins={"x": Mixin(name="x")}), Rule.UNUSED, "mixins/x.yaml"),
    "component of nobody": (_with(components={"x": chart("x")}), Rule.UNUSED, "components/x.yaml"),
    "manifest of nobody": (_with(manifests={"store/x.yaml": []}), Rule.UNUSED, "manifests/store/x.yaml"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_found(name: str) -> None:
    catalogue, rule, where = CASES[name]
    assert [(f.rule, f.where) for f in lint_catalogue(catalogue)] == [(rule, where)]


def test_an_overlay_for_everything_may_say_so() -> None:
    meant = _with(overlays={"all": Overlay(name="all", base="base", notes="meant for all")})
    assert lint_catalogue(meant) == ()


def test_a_version_without_a_reason_is_refused() -> None:
    with pytest.raises(BadInputError, match="without a versionReason"):
        check_catalogue(_patched(version="2.0.0", version_reason="  "))


def test_an_unknown_dependency_is_refused() -> None:
    with pytest.raises(BadInputError, match="did you mean 'store'"):
        check_catalogue(_patched(depends_on=("stor",)))


class _Known:
    def unknown(self, path: Path) -> str | None:
        return None if path[0] in ("version", "args", "image") else "logging" if path[0] == "logs" else ""


def test_an_unknown_value_path_is_found() -> None:
    found = lint_catalogue(_patched(values={"surprise": 1}), lambda name: _Known() if name == "agent" else None)
    assert [(f.rule, f.where) for f in found] == [(Rule.PATH, "mixins/logs.yaml"), (Rule.PATH, "overlays/eks.yaml")]
    assert "did you mean 'logging'?" in found[0].message
    assert "'surprise'" in found[1].message


def test_an_unknown_path_in_a_placeholder_is_found() -> None:
    reads = config_map("a", {"k": {"$value": "sise"}})
    (finding,) = lint_catalogue(
        _with(manifests={"store/claim.yaml": [reads]}),
        lambda name: _Store() if name == "store" else None,
    )
    assert (finding.rule, finding.where) == (Rule.PATH, "manifests/store/claim.yaml")


def test_a_placeholder_without_a_path_is_found() -> None:
    reads = config_map("a", {"k": {"$value": "a..b"}})
    (finding,) = lint_catalogue(_with(manifests={"store/claim.yaml": [reads]}))
    assert "'a..b', which is no path" in finding.message


class _Store:
    def unknown(self, path: Path) -> str | None:
        return None if path == ("class",) else "size"
