"""Layers over a catalogue: what merges, what is refused, who is named for it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from muster import __version__
from muster.configure.catalogue import Source, SourceKind, load
from muster.configure.criteria import Dimension, parse_criteria
from muster.configure.layers.stack import layered
from muster.configure.provenance import explain
from muster.configure.resolve import resolve
from muster.errors import BadInputError
from tests.configure.layer_cases import chart, config_map, content_of, layer, small_catalogue


def with_files(files: dict[str, Any], **header: Any) -> Any:
    return layered(small_catalogue(), [layer(files=files, **header)])


def test_no_layer_is_the_identity() -> None:
    assert layered(load(), []) is load()


def test_an_empty_layer_changes_only_the_digest() -> None:
    base = small_catalogue()
    made = layered(base, [layer()])
    assert content_of(made) == content_of(base)
    assert made.digest != base.digest
    assert [found.name for found in made.layers] == ["acme"]


def test_maps_merge_lists_replace_null_deletes() -> None:
    patch = {"values": {"args": ["-b"], "image": {"tag": "1.2"}, "version": None}}
    values = with_files({"components/agent.yaml": patch}).components["agent"].values
    assert values == {"args": ["-b"], "image": {"pull": "Never", "tag": "1.2"}, "version": None}


def test_lists_of_names_grow() -> None:
    patch = {"components": {"store": {"dependsOn": ["other"], "manifests": {"pre": ["a.yaml"]}}}}
    files = {"overlays/base.yaml": patch, "components/other.yaml": _new("other")}
    store = with_files(files).overlays["base"].components["store"]
    assert store.depends_on == ("agent", "other")
    assert store.manifests.pre == ("a.yaml",)


def _new(name: str) -> dict[str, Any]:
    plain = msgspec.json.decode(msgspec.json.encode(chart(name)))
    assert isinstance(plain, dict)
    return plain


@pytest.mark.parametrize(
    ("demand", "expected"),
    [(">= 1.20", ">= 1.32"), ("< 1.35", ">= 1.32 < 1.35"), (">= 1.34", ">= 1.34")],
)
def test_constraints_narrow(demand: str, expected: str) -> None:
    made = with_files({"overlays/eks.yaml": {"constraints": {"kubernetes.version": demand}}})
    assert made.overlays["eks"].constraints["kubernetes.version"] == expected


def test_the_range_of_a_chart_narrows() -> None:
    made = with_files({"components/store.yaml": {"kubeVersion": "< 1.40"}})
    assert made.components["store"].kube_version == ">= 1.28 < 1.40"


def test_an_empty_intersection_names_both_files() -> None:
    with pytest.raises(BadInputError, match=re.escape("(overlays/eks.yaml)")) as failure:
        with_files({"overlays/eks.yaml": {"constraints": {"kubernetes.version": "< 1.32"}}})
    assert "layer acme: overlays/eks.yaml" in str(failure.value)


def test_a_layer_adds_a_value_to_a_profile() -> None:
    files = {
        "overlays/eks.yaml": {"profile": {"values": {"none": {"components": {"store": {"values": {"class": ""}}}}}}}
    }
    made = with_files(files)
    profile = made.overlays["eks"].profile
    assert profile is not None
    assert list(profile.values) == ["fast", "cheap", "none"]
    found = resolve({Dimension.SERVICE: "eks"}, made, {"disk": "none"})
    store = found.recipe.component("store")
    assert store is not None
    assert store.values == {"class": ""}


def test_a_profile_value_that_sets_other_paths_is_refused() -> None:
    files = {
        "overlays/eks.yaml": {"profile": {"values": {"none": {"components": {"store": {"values": {"size": 1}}}}}}}
    }
    with pytest.raises(BadInputError, match=r"must set the same paths.*store:class, store:size"):
        with_files(files)


def test_an_overlay_opens_the_vocabulary() -> None:
    made = with_files({"overlays/mine.yaml": {"name": "mine", "base": "base", "criteria": {"service": "mycloud"}}})
    assert parse_criteria({"service": "mycloud"}, made) == {Dimension.SERVICE: "mycloud"}
    assert "mycloud" in made.vocabulary(Dimension.SERVICE)
    assert resolve({Dimension.SERVICE: "mycloud"}, made).recipe.overlays == ("base", "mine")
    with pytest.raises(BadInputError, match="did you mean 'mycloud'"):
        parse_criteria({"service": "mycluod"}, made)
    with pytest.raises(BadInputError, match="Unknown service"):
        parse_criteria({"service": "mycloud"})


def test_a_header_opens_the_vocabulary() -> None:
    made = layered(small_catalogue(), [layer(criteria={"accelerator": ("mygpu",)})])
    assert parse_criteria({"accelerator": "mygpu"}, made) == {Dimension.ACCELERATOR: "mygpu"}


def test_a_manifest_is_patched_object_by_object() -> None:
    files = {
        "manifests/store/claim.yaml": [config_map("claim", {"class": "ssd", "size": None}), config_map("more", {})]
    }
    objects = with_files(files).manifests["store/claim.yaml"]
    assert objects == [config_map("claim", {"class": "ssd", "size": None}), config_map("more", {})]


def test_a_manifest_with_conditions_is_patched() -> None:
    def claim(**more: Any) -> dict[str, Any]:
        return config_map("claim", more.pop("data", {})) | more

    base = small_catalogue()
    guarded = [claim(**{"$when": "fast"}), config_map("x", {}) | {"metadata": {"name": {"$name": "x"}}}]
    base = msgspec.structs.replace(base, manifests={"store/claim.yaml": guarded})
    patch = [claim(data={"a": "1"}), config_map("x", {"b": "2"}) | {"metadata": {"name": {"$name": "x"}}}]
    made = layered(base, [layer(files={"manifests/store/claim.yaml": patch})])
    assert [item["data"] for item in made.manifests["store/claim.yaml"]] == [{"a": "1"}, {"b": "2"}]
    assert made.manifests["store/claim.yaml"][0]["$when"] == "fast"
    twice = [claim(**{"$when": "fast"}), claim(**{"$unless": "fast"})]
    base = msgspec.structs.replace(base, manifests={"store/claim.yaml": twice})
    with pytest.raises(BadInputError, match="under several conditions"):
        layered(base, [layer(files={"manifests/store/claim.yaml": patch})])
    chosen = [claim(data={"a": "1"}, **{"$unless": "fast"})]
    made = layered(base, [layer(files={"manifests/store/claim.yaml": chosen})])
    assert [item["data"] for item in made.manifests["store/claim.yaml"]] == [{}, {"a": "1"}]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"components/agent.yaml": {"namespace": None}}, "only values can be deleted"),
        ({"components/agent.yaml": {"values": {"image": "nginx:1"}}}, "in the place of the map 'values.image'"),
        ({"components/agent.yaml": {"name": "other"}}, "stays as it was made"),
        ({"components/agent.yaml": {"nmespace": "x"}}, "nmespace"),
        ({"components/agent.yaml": {"timeoutS": "long"}}, "timeoutS"),
        ({"components/agent.yaml": {"source": {"version": "2.0.0"}}}, "pin.source"),
        (
            {"components/agent.yaml": {"source": {"version": "2.0.0"}, "pin": {"source": "x", "date": "soon"}}},
            "pin.date",
        ),
        ({"components/agent.yaml": ["no map"]}, "holds no map"),
        ({"components/new.yaml": {"values": {}}}, "source"),
        ({"overlays/eks.yaml": {"base": "other"}}, "stays as it was made"),
        ({"overlays/eks.yaml": {"criteria": {"service": "gke"}}}, "stays as it was made"),
        ({"overlays/base.yaml": {"criteria": {"service": "gke"}}}, "stays as it was made"),
        ({"overlays/eks.yaml": {"profile": {"name": "other"}}}, "stays as it was made"),
        ({"overlays/eks.yaml": {"components": {"agnt": {}}}}, "did you mean 'agent'"),
        ({"overlays/eks.yaml": {"components": {"agent": {"version": "2.0.0"}}}}, "versionReason"),
        (
            {"mixins/logs.yaml": {"components": {"agent": {"version": "2.0.0", "versionReason": " "}}}},
            "versionReason",
        ),
        (
            {"overlays/eks.yaml": {"constraints": {"kubernetes.versio": ">= 1.33"}}},
            "did you mean 'kubernetes.version'",
        ),
        (
            {"overlays/eks.yaml": {"constraints": {"kubernetes.version": "about 1.33"}}},
            "layer acme: overlays/eks.yaml",
        ),
        (
            {"overlays/eks.yaml": {"checks": {"deployment": {"constraints": {"driver.version": "< 9"}}}}},
            "names no check",
        ),
        ({"overlays/x.yaml": {"name": "x", "base": "base", "criteria": {"servce": "a"}}}, "did you mean 'service'"),
        ({"overlays/x.yaml": {"name": "x", "base": "base", "criteria": {"service": "A b"}}}, "lower-case"),
        ({"overlays/x.yaml": {"name": "x", "base": "nowhere"}}, "nowhere"),
        ({"overlays/x.yaml": {"name": "y", "base": "base"}}, "name and file must agree"),
        ({"manifests/store/x.yaml": [{"kind": "ConfigMap"}]}, "no Kubernetes object"),
        ({"manifests/store/x.yaml": [config_map("a", {}), config_map("a", {})]}, "twice"),
        ({"manifests/nobody/x.yaml": [config_map("a", {})]}, "belongs to no component"),
    ],
)
def test_a_layer_that_does_not_fit_is_refused(files: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)) as failure:
        with_files(files)
    assert "acme" in str(failure.value)


def test_a_new_pin_with_its_source() -> None:
    patch = {"source": {"version": "2.0.0"}, "pin": {"source": "release notes", "date": "2026-11"}}
    made = with_files({"components/agent.yaml": patch})
    assert made.components["agent"].source.version == "2.0.0"
    assert made.components["agent"].source.repository == "https://charts.example.com"
    found = resolve({Dimension.SERVICE: "eks"}, made)
    (entry,) = explain(found.provenance, ["agent.version"])
    assert entry["settings"][-1]["source"] == "layer acme: components/agent.yaml"
    assert entry["settings"][-1]["replaced"] == "1.0.0"


def test_a_layer_confirms_what_was_not_usable() -> None:
    base = small_catalogue()
    waiting = chart("agent", unavailable="its version is not confirmed", source=Source(kind=SourceKind.HELM))
    base = msgspec.structs.replace(base, components={**base.components, "agent": waiting})
    with pytest.raises(BadInputError, match="not usable yet"):
        resolve({Dimension.SERVICE: "eks"}, base)
    source = {"repository": "https://charts.example.com", "chart": "agent", "version": "1.2.3"}
    patch = {"unavailable": "", "source": source, "pin": {"source": "our own build", "date": "2026-11"}}
    made = layered(base, [layer(files={"components/agent.yaml": patch})])
    agent = resolve({Dimension.SERVICE: "eks"}, made).recipe.component("agent")
    assert agent is not None
    assert agent.source.version == "1.2.3"


def two(first: dict[str, Any], second: dict[str, Any], **header: Any) -> Any:
    return layered(small_catalogue(), [layer("one", first), layer("two", second, **header)])


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ({"values": {"version": "581"}}, {"values": {"version": "582"}}, "values.version"),
        ({"values": {"version": 1}}, {"values": {"version": True}}, "values.version"),
        ({"values": {"image": {"tag": "1"}}}, {"values": {"image": None}}, "values.image"),
        ({"values": {"image": None}}, {"values": {"image": {"tag": "1"}}}, "values.image.tag"),
        ({"values": {"args": ["-b"]}}, {"values": {"args": ["-c"]}}, "values.args"),
        ({"namespace": "a"}, {"namespace": "b"}, "namespace"),
    ],
)
def test_contradicting_layers_conflict_unless_overridden(one: Any, other: Any, path: str) -> None:
    first, second = {"components/agent.yaml": one}, {"components/agent.yaml": other}
    with pytest.raises(BadInputError, match=re.escape(f"'components/agent:{path}'")) as failure:
        two(first, second)
    assert "layer one: components/agent.yaml" in str(failure.value)
    assert "layer two: components/agent.yaml" in str(failure.value)
    made = two(first, second, overrides=(f"components/agent:{path}",))
    alone = layered(small_catalogue(), [layer("two", second)])
    if "image" not in path:
        assert made.components["agent"] == alone.components["agent"]
    assert (
        two(first, first).components["agent"] == layered(small_catalogue(), [layer("x", first)]).components["agent"]
    )


def test_an_empty_map_contradicts_nothing() -> None:
    room, filled = (
        {"components/agent.yaml": {"values": {"new": {}}}},
        {"components/agent.yaml": {"values": {"new": {"a": 1}}}},
    )
    assert two(room, filled).components["agent"].values["new"] == {"a": 1}
    assert two(filled, room).components["agent"].values["new"] == {"a": 1}


def test_an_override_covers_what_lies_below() -> None:
    first = {"components/agent.yaml": {"values": {"image": {"tag": "1"}}}}
    second = {"components/agent.yaml": {"values": {"image": {"tag": "2"}}}}
    made = two(first, second, overrides=("components/agent:values.image",))
    assert made.components["agent"].values["image"]["tag"] == "2"
    with pytest.raises(BadInputError, match="differently"):
        two(first, second, overrides=("components/agent:values.im",))


def test_one_layer_twice_is_refused() -> None:
    with pytest.raises(BadInputError, match="Two layers are named 'acme'"):
        layered(small_catalogue(), [layer(), layer()])


@pytest.mark.parametrize("requires", ["", small_catalogue().digest, ">= 0.1", "< 99"])
def test_what_a_layer_requires_is_there(requires: str) -> None:
    assert layered(small_catalogue(), [layer(requires=requires)]).layers[0].name == "acme"


@pytest.mark.parametrize(
    ("requires", "message"),
    [("sha256:" + "1" * 64, "requires the catalogue"), (">= 99", __version__), ("newest", "requires: ")],
)
def test_what_a_layer_requires_is_not_there(requires: str, message: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)):
        layered(small_catalogue(), [layer(requires=requires)])


def test_provenance_names_the_layer_and_what_it_replaced() -> None:
    files = {
        "components/agent.yaml": {"values": {"version": "581"}},
        "overlays/eks.yaml": {
            "constraints": {"kubernetes.version": "< 1.36"},
            "components": {"agent": {"values": {"image": {"pull": "IfNotPresent"}}}},
        },
        "mixins/logs.yaml": {"components": {"agent": {"values": {"logs": False}}}},
    }
    found = resolve({Dimension.SERVICE: "eks"}, with_files(files))
    (version,) = explain(found.provenance, ["agent:version"])
    assert version["settings"] == [
        {"value": "580.1", "source": "components/agent.yaml"},
        {
            "value": "581",
            "source": "layer acme: components/agent.yaml",
            "replaced": "580.1",
            "replacedSource": "components/agent.yaml",
        },
    ]
    (pull,) = explain(found.provenance, ["agent:image.pull"])
    assert [s["source"] for s in pull["settings"]] == [
        "components/agent.yaml",
        "overlays/eks.yaml",
        "layer acme: overlays/eks.yaml",
    ]
    (logs,) = explain(found.provenance, ["agent:logs"])
    assert [s["source"] for s in logs["settings"]] == ["mixins/logs.yaml", "layer acme: mixins/logs.yaml"]
    (demand,) = explain(found.provenance, ["constraint:kubernetes.version"])
    assert demand["value"] == ">= 1.32 < 1.36"
    assert demand["settings"][-1]["source"] == "layer acme: overlays/eks.yaml"


def test_other_fields_are_attributed_too() -> None:
    found = resolve({Dimension.SERVICE: "eks"}, with_files({"components/agent.yaml": {"namespace": "elsewhere"}}))
    (entry,) = explain(found.provenance, ["agent.namespace"])
    assert entry["value"] == "elsewhere"
    assert [s["source"] for s in entry["settings"]] == ["components/agent.yaml", "layer acme: components/agent.yaml"]


def test_a_conflict_with_a_parent_names_the_layer() -> None:
    files = {"overlays/base.yaml": {"constraints": {"kubernetes.version": "< 1.32"}}}
    with pytest.raises(BadInputError, match=r"layer acme: overlays/base\.yaml"):
        resolve({Dimension.SERVICE: "eks"}, with_files(files))


def test_the_recipe_names_the_layers() -> None:
    found = resolve({Dimension.SERVICE: "eks"}, with_files({}))
    assert [(entry.name, entry.digest) for entry in found.recipe.layers] == [("acme", layer().digest)]
    assert found.recipe.catalogue == layered(small_catalogue(), [layer()]).digest


def test_the_built_in_catalogue_takes_a_layer() -> None:
    files = {"components/gpu-operator.yaml": {"values": {"agent": {"version": "580.200.01"}}}}
    made = layered(load(), [layer(files=files)])
    assert made.components["gpu-operator"].values["agent"]["version"] == "580.200.01"
    assert {n: c for n, c in made.components.items() if n != "gpu-operator"} == {
        n: c for n, c in load().components.items() if n != "gpu-operator"
    }
    assert made.overlays == load().overlays
