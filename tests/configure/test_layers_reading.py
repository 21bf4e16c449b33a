"""Reading layers: hostile folders are refused in one sentence, and opening puts layers on the built-in catalogue."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from muster.configure.catalogue import load
from muster.configure.layers import opening as layers
from muster.configure.layers.opening import open_catalogue, open_layer, read_layer
from muster.configure.registry.tree import MAX_FILE_BYTES
from muster.errors import BadInputError, UnreachableError
from tests.configure.layer_cases import config_map, layer, write_layer

PATCH = {"values": {"driver": {"version": "580.200.01"}}}


def test_a_folder_becomes_a_layer(tmp_path: Path) -> None:
    files = {
        "components/gpu-operator.yaml": PATCH,
        "overlays/mine.yaml": {"name": "mine", "base": "base", "criteria": {"service": "mycloud"}},
        "mixins/os-ubuntu.yaml": {"constraints": {"os.id": "ubuntu"}},
        "manifests/gpu-operator/mine.yaml": [config_map("a", {}), config_map("b", {})],
    }
    folder = write_layer(tmp_path, "acme", {**files, "README.md": "Ours."}, criteria={"service": ["mycloud"]})
    read = read_layer(folder)
    assert read == layer("acme", files, criteria={"service": ("mycloud",)})
    assert read.digest == layer("acme", files, criteria={"service": ("mycloud",)}).digest


def test_layout_and_comments_do_not_count(tmp_path: Path) -> None:
    one = write_layer(tmp_path / "a", files={"components/gpu-operator.yaml": "namespace: x\nvalues: {a: 1}\n"})
    text = "# why\nvalues:\n  a: 1\nnamespace: 'x'\n"
    other = write_layer(tmp_path / "b", files={"components/gpu-operator.yaml": text})
    assert read_layer(one).digest == read_layer(other).digest


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"components/a.yaml": "a: 1\na: 2\n"}, "duplicate key"),
        ({"components/a.yaml": "a: &x [1]\nb: *x\n"}, "aliases are not accepted"),
        ({"components/a.yaml": "a: 1\n---\nb: 2\n"}, "more than 1 YAML document"),
        ({"components/a.yaml": "a: [1\n"}, "not valid YAML"),
        ({"components/a.yaml": b"a: \xff"}, "not valid YAML"),
        ({"components/a.yaml": ""}, "holds nothing"),
        ({"components/a.yaml": "- 1\n"}, None),
        ({"components/a.yaml": "a: .nan\n"}, "not finite"),
        ({"components/a.yaml": "1: x\n"}, "not text"),
        ({"components/a.yaml": "a: " + "[" * 60 + "]" * 60}, "nests deeper"),
        ({"components/a.yaml": "x" * (MAX_FILE_BYTES + 1)}, "larger than 10 MiB"),
        ({"components/a.yml": "a: 1\n"}, "no file of a catalogue layer"),
        ({"component/a.yaml": "a: 1\n"}, "no file of a catalogue layer"),
        ({"components/a/b.yaml": "a: 1\n"}, "no file of a catalogue layer"),
        ({"components/A b.yaml": "a: 1\n"}, "no file of a catalogue layer"),
        ({"manifests/a.yaml": "a: 1\n"}, "no file of a catalogue layer"),
        ({".git/config": "x"}, "no file of a catalogue layer"),
        ({"layer.yaml": "name: x\n"}, "does not describe a catalogue layer"),
        (
            {"layer.yaml": {"apiVersion": "muster.dev/v1", "kind": "CatalogueLayer", "name": "a"}},
            "must have apiVersion",
        ),
        ({"layer.yaml": {"apiVersion": "muster.dev/v1alpha1", "kind": "Layer", "name": "a"}}, "must have apiVersion"),
    ],
)
def test_a_hostile_folder_is_refused(tmp_path: Path, files: dict[str, Any], message: str | None) -> None:
    write_layer(tmp_path, files=files)
    if message is None:
        with pytest.raises(BadInputError, match="holds no map"):
            open_catalogue([str(tmp_path)])
        return
    with pytest.raises(BadInputError, match=message) as failure:
        read_layer(tmp_path)
    assert str(tmp_path) in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"name": "No"}, "no DNS label"),
        ({"criteria": {"servce": ["x"]}}, "no dimension is named 'servce'"),
        ({"criteria": {"service": "x"}}, "does not describe"),
        ({"overrides": ["gpu-operator:a"]}, "names no path"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_bad_header_is_refused(tmp_path: Path, header: dict[str, Any], message: str) -> None:
    write_layer(tmp_path, **({"name": "acme"} | header))
    with pytest.raises(BadInputError, match=message):
        read_layer(tmp_path)


def test_a_folder_without_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"holds no layer\.yaml"):
        read_layer(tmp_path)
    with pytest.raises(BadInputError, match="is no folder"):
        read_layer(tmp_path / "absent")
    with pytest.raises(BadInputError, match="Cannot read"):
        read_layer(tmp_path / ("x" * 5000))


def test_links_and_pipes_are_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text("values: {a: 1}\n")
    linked = write_layer(tmp_path / "linked")
    (linked / "components").mkdir()
    (linked / "components" / "gpu-operator.yaml").symlink_to(outside)
    with pytest.raises(BadInputError, match="a link or no regular file"):
        read_layer(linked)
    folder = write_layer(tmp_path / "folder")
    (folder / "components").symlink_to(tmp_path)
    with pytest.raises(BadInputError, match="a link or no regular file"):
        read_layer(folder)
    piped = write_layer(tmp_path / "piped")
    os.mkfifo(piped / "README.md")
    with pytest.raises(BadInputError, match="a link or no regular file"):
        read_layer(piped)


def test_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.configure.registry.tree.MAX_FILES", 3)
    write_layer(tmp_path, files={f"components/c{n}.yaml": "a: 1\n" for n in range(4)})
    with pytest.raises(BadInputError, match="or 3 files"):
        read_layer(tmp_path)


def test_a_large_layer_is_refused(tmp_path: Path) -> None:
    write_layer(tmp_path, files={f"components/c{n}.yaml": "#" * (9 * 2**20) for n in range(2)})
    with pytest.raises(BadInputError, match="larger than 16 MiB"):
        read_layer(tmp_path)


def test_opening_puts_layers_on_top(tmp_path: Path) -> None:
    assert open_catalogue() is load()
    one = write_layer(tmp_path / "one", "one", {"components/gpu-operator.yaml": PATCH})
    two = write_layer(tmp_path / "two", "two", {"components/gpu-operator.yaml": {"values": {"mine": True}}})
    made = open_catalogue([str(one), str(two)])
    assert [entry.name for entry in made.layers] == ["one", "two"]
    assert made.components["gpu-operator"].values["mine"] is True
    assert made.components["gpu-operator"].values["driver"]["version"] == "580.200.01"


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("https://example.com/layer", "neither a folder nor"),
        ("oci://Host/UPPER:1", "no reference"),
        ("oci://", "no ref"),
    ],
)
def test_a_strange_reference_is_refused(ref: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        open_layer(ref)


def test_too_many_layers_are_refused() -> None:
    with pytest.raises(BadInputError, match="at most 20"):
        open_catalogue(["x"] * 21)


def test_a_damaged_cache_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    digest = "sha256:" + "5" * 64
    cache = tmp_path / "muster" / "catalogue"
    assert layers.cache_folder() == cache
    cache.mkdir(parents=True)
    (cache / f"{digest.replace(':', '-')}.json").write_text("{}")
    (cache / f"{digest.replace(':', '-')}.tar.gz").write_text("damaged")
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        open_catalogue([f"oci://127.0.0.1:1/acme/layer@{digest}"])


def test_the_cache_lies_in_the_home_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert layers.cache_folder() == Path.home() / ".cache" / "muster" / "catalogue"


def test_a_user_without_a_home_needs_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert layers.cache_folder() is None
    with pytest.raises(UnreachableError):
        layers.open_layer("oci://127.0.0.1:1/layers/acme@sha256:" + "a" * 64)
