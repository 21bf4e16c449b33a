"""Argo CD with Helm: Helm's own engine renders the chart, and the result is what the deployer `argocd` holds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from muster import yamlio
from muster.configure.bundles import build as bundles
from muster.configure.bundles.build import Deployer
from muster.configure.bundles.overrides import parse_overrides
from muster.configure.values import merge
from tests.bundle.cases import built, bundle_of
from tests.bundle.read_argocd import read as read_argocd
from tests.bundle.read_argocd_helm import read, read_rendered
from tests.configure.cases import NAMES, recipe_of
from tests.configure.test_values import HOSTILE

HELM = Deployer.ARGOCD_HELM
CHILDREN: dict[str, Any] = {"parent": {"enabled": False}}
LEAF = "h100-eks-ubuntu-inference-dynamo"
HELM_LIMIT_BYTES = 1024 * 1024
"""What fits into the Secret in which Helm keeps a release."""


def by_name(documents: list[Any]) -> dict[str, Any]:
    return {document["metadata"]["name"]: document for document in documents}


def plain_applications(name: str) -> dict[str, Any]:
    """The Applications of the deployer `argocd`, with the folder of charts that this deployer uses."""
    files = bundle_of(name, Deployer.ARGOCD)[1]
    found = [yamlio.loads(files[n], n) for n in sorted(files) if n.startswith("applications/")]
    for document in found:
        source = document["spec"]["source"]
        if "path" in source and source["path"] != ".":
            source["path"] = source["path"].replace("/charts/", "/local/")
    return by_name(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(LEAF, tmp_path)


def written(name: str, below: Path) -> Path:
    target = below / name
    bundles.write(target, bundle_of(name, HELM)[1])
    return target


def rendered(helm: Path, folder: Path, values: Any, *more: str) -> list[Any]:
    """What `helm template` makes of the chart, values given as a file."""
    file = folder.parent / "values-of-the-test.yaml"
    file.write_text(yamlio.dumps(values))
    done = subprocess.run(
        [str(helm), "template", "muster-bundle", str(folder), "--namespace", "argocd", "--values", str(file), *more],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yamlio.loads_all(done.stdout, "helm template") if document is not None]


@pytest.mark.parametrize("name", NAMES)
def test_it_holds_the_applications_of_argocd(name: str) -> None:
    """Without an engine: the data in the chart says the same; the suite with the engine shows that it survives."""
    ours, plain = read(bundle_of(name, HELM)[1]), read_argocd(bundle_of(name, Deployer.ARGOCD)[1])
    assert sorted(ours, key=lambda f: f.name) == sorted(plain, key=lambda f: f.name)


def test_nothing_is_rendered_as_a_part_of_the_chart() -> None:
    """Helm renders what lies under charts/ together with the chart, and templates/ are the same for every bundle."""
    texts = set()
    for name in NAMES:
        files = bundle_of(name, HELM)[1]
        assert not any(path.startswith("charts/") for path in files)
        texts.add(tuple(text for path, text in sorted(files.items()) if path.startswith("templates/")))
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("values", "fine"),
    [
        ({}, True),
        ({"repository": {"url": "oci://registry.example/x", "revision": "1", "path": "."}}, True),
        ({"releases": {"gpu-operator": {"values": {"driver": {"version": None}}}}}, True),
        ({"releases": {"gpu-operator": {"values": "driver:\n  version: null\n"}}}, True),
        ({"global": {"x": 1}}, True),
        ({"releases": {"gpu-operatr": {"values": {}}}}, False),
        ({"releases": {"gpu-operator": {"value": {}}}}, False),
        ({"releases": {"gpu-operator": {"values": [1]}}}, False),
        ({"releases": {"agentgateway-post": {"values": {}}}}, False),
        ({"repository": {"revison": "x"}}, False),
        ({"repository": {"url": ""}}, False),
        ({"parent": False}, False),
        ({"namespce": "x"}, False),
        ({"destination": {"name": "x"}}, False),
    ],
)
def test_the_schema_refuses_slips(values: dict[str, Any], fine: bool) -> None:
    files = bundle_of(LEAF, HELM)[1]
    schema = json.loads(files["values.schema.json"])
    jsonschema.Draft7Validator.check_schema(schema)
    whole = yamlio.loads(files["values.yaml"], "values.yaml")
    merge(whole, values)
    assert jsonschema.Draft7Validator(schema).is_valid(whole) is fine


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_the_engine_renders_what_argocd_holds(helm: Path, name: str, tmp_path: Path) -> None:
    target = written(name, tmp_path)
    documents = rendered(helm, target, CHILDREN)
    assert by_name(documents) == plain_applications(name)
    files = bundle_of(name, HELM)[1]
    found = read_rendered(documents, files, "gpu/bundle/")
    plain = {f.name: f for f in read_argocd(bundle_of(name, Deployer.ARGOCD)[1])}
    assert {f.name: f for f in found} == plain


@pytest.mark.full
def test_another_engine_agrees(helm: Path, folder: Path) -> None:
    """Argo CD brings a Helm of its own."""
    import helm_python

    with helm_python.Chart.load(folder) as chart:
        texts = chart.render(CHILDREN, name="muster-bundle", namespace="argocd")
    documents = [d for path, text in texts.items() for d in yamlio.loads_all(text, path) if d is not None]
    assert by_name(documents) == by_name(rendered(helm, folder, CHILDREN))


@pytest.mark.full
def test_installed_by_hand_it_is_the_parent_alone(helm: Path, folder: Path) -> None:
    (parent,) = rendered(helm, folder, {})
    source = parent["spec"]["source"]
    assert parent["metadata"]["name"] == "muster-bundle"
    assert (source["repoURL"], source["targetRevision"]) == ("https://git.example/clusters/prod.git", "v1")
    assert source["path"] == "gpu/bundle"
    assert parent["spec"]["syncPolicy"]["retry"]["limit"] < 0
    again = rendered(helm, folder, yamlio.loads(source["helm"]["values"], "parent"))
    assert by_name(again) == plain_applications(LEAF)


CHOICES: dict[str, Any] = {
    "repository": {"url": "oci://registry.example/bundles/prod", "revision": "2026-10-01", "path": "."},
    "project": "gpu",
    "namespace": "gitops",
    "destination": {"server": "https://10.0.0.1:6443"},
    "releases": {
        "gpu-operator": {"values": {"driver": {"version": None, "list": []}, "1e3": "yes", "big": 12345678901}},
        "cert-manager": {"values": "a:\n  b: null\n  c: 'null'\n"},
    },
}


@pytest.mark.full
def test_choices_pass_through_the_parent(helm: Path, folder: Path) -> None:
    """What is chosen at install reaches the Applications: by hand the chart is rendered once, by Argo CD again."""
    (parent,) = rendered(helm, folder, CHOICES)
    assert parent["metadata"]["namespace"] == parent["spec"]["destination"]["namespace"] == "gitops"
    assert parent["spec"]["destination"]["server"] == "https://kubernetes.default.svc"
    assert parent["spec"]["source"]["repoURL"] == "oci://registry.example/bundles/prod"
    found = by_name(rendered(helm, folder, yamlio.loads(parent["spec"]["source"]["helm"]["values"], "parent")))
    plain = plain_applications(LEAF)
    assert sorted(found) == sorted(plain)
    for name, document in found.items():
        spec, before = document["spec"], plain[name]["spec"]
        assert (document["metadata"]["namespace"], spec["project"]) == ("gitops", "gpu")
        assert spec["destination"] == before["destination"] | {"server": "https://10.0.0.1:6443"}
        if "path" in before["source"]:
            assert spec["source"]["repoURL"] == "oci://registry.example/bundles/prod"
            assert spec["source"]["targetRevision"] == "2026-10-01"
            assert f"gpu/bundle/{spec['source']['path']}" == before["source"]["path"]
        else:
            assert spec["source"]["repoURL"] == before["source"]["repoURL"]
        values, expected = (yamlio.loads(s["source"]["helm"]["values"], name) for s in (spec, before))
        chosen = CHOICES["releases"].get(name, {}).get("values", {})
        merge(expected, yamlio.loads(chosen, name) if isinstance(chosen, str) else chosen)
        assert values == expected
        if not chosen:
            assert spec["source"]["helm"]["values"] == before["source"]["helm"]["values"]


@pytest.mark.full
@pytest.mark.parametrize("as_text", [False, True])
def test_hostile_values_pass_through_the_engine(helm: Path, tmp_path: Path, as_text: bool) -> None:
    """Those that the bundle holds, and those that are merged over them at install."""
    recipe = recipe_of("h100-any")
    sets = [f"nfd:k{at}.yes={json.dumps(text)}" for at, text in enumerate(HOSTILE)]
    sets += ["nfd:nothing=null", "nfd:empty=[]", "nfd:map={}", r"nfd:sel.nvidia\.com/gpu=true", 'nfd:123="123"']
    target = tmp_path / "bundle"
    bundles.write(target, built(recipe, HELM, parse_overrides(sets, recipe))[1])
    chosen = {f"m{at}": {text: text} for at, text in enumerate(HOSTILE)} | {"none": {"a": None}, "no": [], "x.y": {}}
    given = yamlio.dumps(chosen) if as_text else chosen
    (parent,) = rendered(helm, target, {"releases": {"nfd": {"values": given}}})
    for values in (CHILDREN, yamlio.loads(parent["spec"]["source"]["helm"]["values"], "parent")):
        document = by_name(rendered(helm, target, values))["nfd"]
        found = yamlio.loads(document["spec"]["source"]["helm"]["values"], "nfd")
        assert [found[f"k{at}"]["yes"] for at in range(len(HOSTILE))] == HOSTILE
        assert (found["nothing"], found["empty"], found["map"]) == (None, [], {})
        assert (found["sel"], found["123"]) == ({"nvidia.com/gpu": True}, "123")
        if values is not CHILDREN:
            assert {key: found[key] for key in chosen} == chosen


@pytest.mark.full
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set", "releases.gpu-operatr.values.a=1"], "gpu-operatr"),
        (["--set", "namespce=x"], "namespce"),
        (["--set-string", "releases.gpu-operator.values=- a", "--set", "parent.enabled=false"], "no map of values"),
    ],
)
def test_the_engine_refuses_slips(helm: Path, folder: Path, flags: list[str], message: str) -> None:
    done = subprocess.run(
        [str(helm), "template", "x", str(folder), *flags], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.full
def test_helm_finds_nothing_wrong_and_can_keep_it(helm: Path, folder: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(helm), "lint", str(folder), "--strict"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    packed = subprocess.run(
        [str(helm), "package", str(folder), "--destination", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.glob("*.tgz")
    # Helm stores it as base64.
    assert archive.stat().st_size * 4 / 3 < HELM_LIMIT_BYTES / 4
