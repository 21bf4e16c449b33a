"""The generated CRDs: fresh on disk, structural, bounded, and wide enough for every value of the models."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec import inspect as types

from muster import yamlio
from muster.kube import api
from muster.resources import crd
from muster.resources.base import GROUP, from_object, to_object
from muster.resources.crd_tables import BOUNDS, KINDS, ROOT_RULES, RULES, KindInfo
from muster.resources.fault_policy import Blackout, Correlation
from muster.resources.maintenance import MaintenanceSpec

FOLDER = Path(__file__).parents[2] / "deploy" / "crds"
WHEN = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
by_kind = pytest.mark.parametrize("info", KINDS, ids=lambda info: info.kind)


def schema_of(info: KindInfo) -> dict[str, Any]:
    manifest = crd.manifests()[KINDS.index(info)]
    return manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]  # type: ignore[no-any-return]


def nodes_of(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path or ".", schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes_of(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from nodes_of(schema[word], f"{path}[{word}]")


def test_every_caller_has_manifests_of_its_own() -> None:
    crd.manifests()[0]["spec"]["group"] = "changed"
    assert crd.manifests()[0]["spec"]["group"] == GROUP


SAMPLES: dict[tuple[type, str], Any] = {
    (Blackout, "start"): "06:00",
    (Correlation, "at_least"): 2,
    (MaintenanceSpec, "closes_at"): WHEN + timedelta(hours=8),
    (MaintenanceSpec, "emergency"): False,
}
"""Values of fields for which no value of their type alone will do."""


def sample_of(model: type, field: types.Field) -> Any:
    key = (model, field.name)
    return SAMPLES[key] if key in SAMPLES else sample(field.type)


def sample(kind: types.Type) -> Any:
    """A value with every field set, whatever the model."""
    match kind:
        case types.UnionType():
            return sample(next(option for option in kind.types if not isinstance(option, types.NoneType)))
        case types.StructType():
            return kind.cls(**{field.name: sample_of(kind.cls, field) for field in kind.fields})
        case types.EnumType():
            return list(kind.cls)[-1]
        case types.VarTupleType():
            return (sample(kind.item_type),)
        case types.DictType():
            return {"key": sample(kind.value_type)}
        case types.DateTimeType():
            return WHEN
        case types.BoolType():
            return True
        case types.IntType():
            return 1
        case types.FloatType():
            return 0.5
        case _:
            return "6"


@by_kind
def test_the_files_are_fresh(info: KindInfo) -> None:
    file = FOLDER / f"{info.plural}.yaml"
    assert file.read_text() == crd.text(info), "run: python -m muster.resources.crd deploy/crds"
    assert yamlio.load(file) == crd.manifests()[KINDS.index(info)]


def test_there_is_no_file_of_a_kind_that_is_gone() -> None:
    assert sorted(file.stem for file in FOLDER.iterdir()) == sorted(info.plural for info in KINDS)


@by_kind
def test_every_node_is_typed_and_bounded(info: KindInfo) -> None:
    for path, node in nodes_of(schema_of(info)):
        assert node["type"] in ("object", "array", "string", "integer", "number", "boolean"), path
        assert "$ref" not in node, path
        if node["type"] == "array":
            assert node["maxItems"] > 0, path
            assert node["x-kubernetes-list-type"] in ("atomic", "map", "set"), path
        if node["type"] == "string" and "enum" not in node and path not in (".apiVersion", ".kind"):
            assert node.get("maxLength", 0) > 0 or node.get("format") == "date-time", path
        if "additionalProperties" in node:
            assert node["maxProperties"] > 0, path
            assert "properties" not in node, path
        for name in node.get("required", ()):
            assert name in node["properties"], path
            assert "default" not in node["properties"][name], path


@by_kind
def test_every_field_of_the_models_passes_and_none_is_pruned(info: KindInfo) -> None:
    schema = schema_of(info)
    for _, node in nodes_of(schema):
        if "properties" in node:
            node["additionalProperties"] = False
    value = sample(types.type_info(info.model))
    obj = msgspec.json.decode(msgspec.json.encode(to_object(value)))
    # Draft 4 has the boolean `exclusiveMinimum` of OpenAPI 3.0.
    jsonschema.Draft4Validator(schema).validate(obj)
    assert from_object(info.model, obj) == value


@by_kind
def test_defaults_are_those_of_the_model(info: KindInfo) -> None:
    def filled(schema: dict[str, Any], given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        result = dict(given)
        for name, inner in schema.get("properties", {}).items():
            if name not in result and "default" in inner:
                result[name] = inner["default"]
            if name in result:
                result[name] = filled(inner, result[name])
        return result

    def minimal(struct: types.StructType) -> dict[str, Any]:
        given = {}
        for field in struct.fields:
            if isinstance(field.type, types.StructType):
                given[field.encode_name] = minimal(field.type)
            elif field.required:
                given[field.encode_name] = msgspec.to_builtins(sample(field.type))
        return given

    spec = next(field for field in types.type_info(info.model).fields if field.name == "spec")  # type: ignore[attr-defined]
    given = minimal(spec.type)
    plain = msgspec.convert(given, spec.type.cls, strict=False)
    defaulted = msgspec.convert(filled(schema_of(info)["properties"]["spec"], given), spec.type.cls, strict=False)
    assert defaulted == plain


@by_kind
def test_names_are_those_of_the_client(info: KindInfo) -> None:
    known = [
        api.NODE_HEALTHS,
        api.CERTIFICATIONS,
        api.CERTIFICATION_PARTS,
        api.REPAIRS,
        api.MAINTENANCES,
        api.FAULT_POLICIES,
        api.BASELINES,
    ]
    (res,) = (res for res in known if res.kind == info.kind)
    manifest = crd.manifests()[KINDS.index(info)]
    assert res.plural == manifest["spec"]["names"]["plural"]
    assert res.group == manifest["spec"]["group"]
    assert res.version == manifest["spec"]["versions"][0]["name"]
    assert res.namespaced is (manifest["spec"]["scope"] == "Namespaced")
    assert manifest["metadata"]["name"] == f"{res.plural}.{res.group}"


def test_short_names_are_unique() -> None:
    assert len({info.short_name for info in KINDS}) == len(KINDS)


@by_kind
def test_columns_point_at_fields(info: KindInfo) -> None:
    schema = schema_of(info)
    kinds = {"string": ("string", "array"), "date": ("string",), "integer": ("integer",), "boolean": ("boolean",)}
    for column in info.columns:
        node: Any = schema
        if column.path.startswith(".metadata."):
            continue
        for name in column.path.split(".")[1:]:
            assert name in node["properties"], column
            node = node["properties"][name]
        assert node["type"] in kinds[column.type], column
        # A time that is still to come is shown as it is: the age of one is "<invalid>".
        if column.type == "date":
            assert node.get("format") == "date-time", column


def test_tables_name_only_fields_that_exist() -> None:
    for model, attribute in BOUNDS:
        assert attribute in model.__struct_fields__, (model, attribute)
    for model in (*RULES, *ROOT_RULES):
        assert issubclass(model, msgspec.Struct)


def test_fields_are_described_by_the_words_below_them() -> None:
    (info,) = (info for info in KINDS if info.kind == "Repair")
    spec = schema_of(info)["properties"]["spec"]
    assert spec["properties"]["gpuUuids"]["description"] == (
        "GPUs to reset, or to replace; empty means all of the node."
    )


def test_writing_to_a_place_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(crd.BadInputError, match=r"^Cannot write to "):
        crd.write(tmp_path / "file")


def test_writing_gives_every_file(tmp_path: Path) -> None:
    written = crd.write(tmp_path / "new" / "folder")
    assert [file.read_text() for file in written] == [crd.text(info) for info in KINDS]
