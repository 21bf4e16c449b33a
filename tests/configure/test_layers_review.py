"""Reviews of layers: what they bring is linted, every recipe that they touch is resolved."""

from __future__ import annotations

from typing import Any

import pytest

from muster.configure.catalogue import load
from muster.configure.criteria import parse_criteria
from muster.configure.layers.review import Review, review
from muster.configure.layers.stack import layered
from muster.configure.lint import Rule, Severity
from muster.configure.matching import unavailable
from muster.configure.resolve import leaf_names, resolve
from muster.configure.values import Path
from muster.errors import BadInputError
from tests.configure.layer_cases import config_map, layer, small_catalogue


def reviewed(files: dict[str, Any], below: Any = (), paths_of: Any = lambda name: None, **header: Any) -> Review:
    return review(layer(files=files, **header), small_catalogue(), below, paths_of)


def test_a_layer_without_fault() -> None:
    found = reviewed({"components/agent.yaml": {"values": {"more": 1}}})
    assert found.is_fine
    assert found.findings == ()
    assert found.recipes == ("eks",)


def test_only_what_is_touched_is_resolved() -> None:
    mine = {"name": "mine", "base": "base", "criteria": {"service": "mycloud"}}
    assert reviewed({"overlays/mine.yaml": mine}, criteria={"service": ("mycloud",)}).recipes == ("mine",)
    assert reviewed({"overlays/base.yaml": {"notes": "x"}}).recipes == ("eks",)
    assert reviewed({"mixins/logs.yaml": {"constraints": {"os.id": "ubuntu"}}}).recipes == ("eks",)
    assert reviewed({"manifests/store/claim.yaml": [config_map("more", {})]}).recipes == ("eks",)
    assert reviewed({}).recipes == ()


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "eA=="}}, "a Secret holds"),
        (config_map("c", {"password": "hunter2"}), "data.password is a secret"),
        (config_map("c", {"image": "a/b:latest"}), "which moves"),
    ],
)
def test_a_secret_in_a_manifest_of_a_layer_stops_the_recipe(item: dict[str, Any], message: str) -> None:
    catalogue = layered(small_catalogue(), [layer(files={"manifests/store/claim.yaml": [item]})])
    with pytest.raises(BadInputError, match=f"store/claim.yaml .*{message}"):
        resolve(parse_criteria({"service": "eks"}, catalogue), catalogue)


def test_a_recipe_that_no_longer_resolves_is_found() -> None:
    files = {"overlays/base.yaml": {"constraints": {"kubernetes.version": "< 1.32"}}}
    (finding,) = reviewed(files).findings
    assert finding.rule is Rule.RECIPE
    assert "layer acme: overlays/base.yaml" in finding.message


def test_one_fault_in_many_recipes_is_one_finding() -> None:
    other = {"name": "mine", "base": "base", "criteria": {"service": "mycloud"}}
    files = {"overlays/mine.yaml": other, "components/agent.yaml": {"namespace": "../x"}}
    (finding,) = reviewed(files, criteria={"service": ("mycloud",)}).findings
    assert finding.rule is Rule.RECIPE
    assert finding.message.endswith("The same for 1 more of the recipes.")


def test_an_overlay_for_another_service_than_its_base_is_doubtful() -> None:
    files = {"overlays/mine.yaml": {"name": "mine", "base": "eks", "criteria": {"service": "ekss", "os": "ubuntu"}}}
    found = [f for f in reviewed(files, criteria={"service": ("ekss",)}).findings if f.rule is Rule.CRITERION]
    assert [f.where for f in found] == ["overlays/mine.yaml"]
    assert "'ekss' and based on eks, which is for 'eks'" in found[0].message
    assert found[0].severity is Severity.WARNING


def test_every_value_of_a_profile_is_resolved() -> None:
    value = {"constraints": {"kubernetes.version": "< 1.32"}, "components": {"store": {"values": {"class": "x"}}}}
    others = {"constraints": {"kubernetes.version": "< 1.50"}}
    files = {"overlays/eks.yaml": {"profile": {"values": {"old": value, "fast": others, "cheap": others}}}}
    (finding,) = reviewed(files).findings
    assert finding.rule is Rule.RECIPE
    assert "with disk=old" in finding.message


def test_only_what_the_layer_brings_is_linted() -> None:
    faulty = layer("below", {"components/agent.yaml": {"values": {"adminPassword": "x"}}})
    found = reviewed({"overlays/eks.yaml": {"notes": "y"}}, [faulty])
    assert [f.rule for f in found.findings] == [Rule.RECIPE], "a secret of a lower layer still stops the recipe"
    assert [f.rule for f in reviewed(faulty.files).findings] == [Rule.SECRET, Rule.RECIPE]
    assert not found.is_fine


def test_a_criterion_that_looks_like_a_slip() -> None:
    typed = {"name": "mine", "base": "base", "criteria": {"service": "ekss"}}
    (finding,) = reviewed({"overlays/mine.yaml": typed}).findings
    assert (finding.rule, finding.severity) == (Rule.CRITERION, Severity.WARNING)
    assert "did you mean 'eks'?" in finding.message
    assert reviewed({"overlays/mine.yaml": typed}, criteria={"service": ("ekss",)}).findings == ()
    (unused,) = reviewed({}, criteria={"service": ("nobody",)}).findings
    assert (unused.rule, unused.where) == (Rule.UNUSED, "layer.yaml")


class _Known:
    def unknown(self, path: Path) -> str | None:
        return None if path[0] in ("version", "args", "image", "logs") else ""


def test_unknown_paths_are_found_while_the_chart_is_the_same() -> None:
    files: dict[str, Any] = {"components/agent.yaml": {"values": {"surprise": 1}}}
    assert [
        f.rule for f in reviewed(files, paths_of=lambda name: _Known()).findings if f.where.endswith("agent.yaml")
    ] == [Rule.PATH]
    files["components/agent.yaml"] |= {"source": {"chart": "other"}, "pin": {"source": "x", "date": "2026-11"}}
    found = reviewed(files, paths_of=lambda name: _Known() if name == "agent" else None)
    assert found.findings == ()


def test_a_version_that_an_overlay_shadows() -> None:
    pinned = layer(
        "below", {"overlays/eks.yaml": {"components": {"agent": {"version": "0.9.0", "versionReason": "why"}}}}
    )
    bump = {"source": {"version": "2.0.0"}, "pin": {"source": "release notes", "date": "2026-11"}}
    found = reviewed({"components/agent.yaml": bump}, [pinned])
    assert [(f.rule, f.severity) for f in found.findings] == [(Rule.PIN, Severity.WARNING)]
    assert "overlays/eks.yaml keeps version 0.9.0 (why)" in found.findings[0].message
    assert reviewed({"components/agent.yaml": bump}).findings == ()


def test_a_layer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInputError, match="nowhere"):
        reviewed({"overlays/x.yaml": {"name": "x", "base": "nowhere"}})


def test_a_layer_over_everything_resolves_every_recipe() -> None:
    found = review(layer(files={"overlays/base.yaml": {"notes": "x"}}), load(), (), lambda name: None)
    usable = tuple(name for name in leaf_names(load()) if not unavailable(name, load()))
    assert found.recipes == usable
    assert found.findings == ()
