"""The catalogue's data against the published facts, pins with their sources, health rules, needs and value paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from muster import yamlio
from muster.configure.catalogue import Component, Health, Overlay, Patch, Scope, load
from muster.configure.known_paths import known_paths
from muster.configure.live.health import by_rule
from muster.configure.parameters import value_paths
from muster.configure.values import ABSENT, get, leaves, parse_path, path_text, same
from muster.resources.baseline import AssertionResult

FACTS: dict[str, Any] = yamlio.load(Path(__file__).parent / "data" / "published_catalogue.yaml")
CATALOGUE = load()

# What is ours by intent, with the reason. Everything else must equal the facts.
TALOS = "the namespace's labels stand in the patch itself, so the manifest that only labels a namespace is not needed"


def subset(wanted: Any, found: Any) -> bool:
    """Whether `found` holds everything in `wanted`; lists and scalars must be the same."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(k in found and subset(v, found[k]) for k, v in wanted.items())
    return same(wanted, found)


@pytest.mark.parametrize("name", sorted(FACTS["components"]))
def test_component_equals_the_published_facts(name: str) -> None:
    facts, ours = FACTS["components"][name], CATALOGUE.components[name]
    assert not ours.unavailable
    assert ours.namespace == facts["namespace"]
    assert list(ours.aliases) == facts.get("aliases", [])
    assert ours.source.repository == facts.get("repository", "")
    assert ours.source.chart == facts.get("chart", "")
    assert ours.source.version == facts.get("version", "")
    placement = {
        "systemSelectors": ours.placement.system_selectors,
        "systemTolerations": ours.placement.system_tolerations,
        "acceleratedSelectors": ours.placement.accelerated_selectors,
        "acceleratedTolerations": ours.placement.accelerated_tolerations,
        "acceleratedTaints": ours.placement.accelerated_taints,
        "workloadSelectors": ours.placement.workload_selectors,
        "nodeCountPaths": ours.node_count_paths,
        "storageClassPaths": ours.storage.class_paths,
        "sharedStorageClassPaths": ours.storage.shared_class_paths,
    }
    assert {k: list(v) for k, v in placement.items() if v} == {k: facts[k] for k in placement if k in facts}
    flags = {
        "hasSelfRefCRDs": ours.crds.self_referencing,
        "manifestsUseChartCRDs": ours.crds.used_by_manifests,
        "ownsCRDs": ours.crds.owned and not ours.crds.only,
    }
    assert sorted(flag for flag, on in flags.items() if on) == facts.get("flags", [])
    for manifest in facts.get("manifests", []):
        assert manifest in (*ours.manifests.pre, *ours.manifests.post)


def check_patch(ours: Patch, facts: Mapping[str, Any], talos: bool = False) -> None:
    assert list(ours.depends_on) == facts.get("dependsOn", [])
    assert list(ours.manifests.post) == facts.get("post", [])
    if talos:
        assert facts["pre"] == ["talos-namespace.yaml"]
        assert ours.namespace_labels, TALOS
    else:
        # Quotas of GKE are written by the source's program; ours stands in the catalogue.
        assert [m for m in ours.manifests.pre if m != "gke-critical-pods-quota.yaml"] == facts.get("pre", [])
    assert ours.version == facts.get("version", "")
    assert ours.enabled == facts.get("enabled")
    assert subset(facts.get("values", {}), ours.values)


@pytest.mark.parametrize("name", sorted(FACTS["overlays"]))
def test_overlay_equals_the_published_facts(name: str) -> None:
    facts, ours = FACTS["overlays"][name], CATALOGUE.overlays[name]
    assert ours.base == facts.get("base", "")
    assert ours.criteria == facts.get("criteria", {})
    assert list(ours.mixins) == facts.get("mixins", [])
    assert ours.constraints == facts.get("constraints", {})
    # Newer catalogues carry the driver installer in every GKE recipe.
    names = [n for n in ours.components if n != "gcp-driver-installer"]
    assert sorted(names) == sorted(facts.get("components", {}))
    for component, patch in facts.get("components", {}).items():
        check_patch(ours.components[component], patch)
    checks = {p: {"checks": list(c.checks), "constraints": c.constraints} for p, c in ours.checks.items()}
    wanted = {
        p: {"checks": c.get("checks", []), "constraints": c.get("constraints", {})}
        for p, c in facts.get("checks", {}).items()
    }
    assert checks == wanted
    if "profile" in facts:
        check_profile(ours, facts["profile"])


def check_profile(ours: Overlay, facts: Mapping[str, Any]) -> None:
    assert ours.profile is not None
    assert (ours.profile.name, ours.profile.default) == (facts["name"], facts["default"])
    renamed = {"driver-installer": "bundle-installer"}
    for name, value in facts["values"].items():
        found = ours.profile.values[renamed.get(name, name)]
        assert subset(value["constraints"], found.constraints)
        for component, values in value["components"].items():
            assert subset({k: v for k, v in values.items() if k != "installer"}, found.components[component].values)


@pytest.mark.parametrize("name", sorted(FACTS["mixins"]))
def test_mixin_equals_the_published_facts(name: str) -> None:
    facts, ours = FACTS["mixins"][name], CATALOGUE.mixins[name]
    assert ours.constraints == facts["constraints"]
    assert sorted(ours.components) == sorted(facts["components"])
    for component, patch in facts["components"].items():
        check_patch(ours.components[component], patch, talos=name == "os-talos")


def test_the_tables_are_whole() -> None:
    assert len(FACTS["components"]) == 47
    assert len(FACTS["overlays"]) == 103
    newer = sorted(set(CATALOGUE.overlays) - set(FACTS["overlays"]))
    assert newer == [
        "gb200-eks-amazonlinux-inference", "gb200-gke-cos-training", "gb300-any", "gb300-eks-amazonlinux-inference",
        "gb300-eks-inference", "gb300-eks-training", "gb300-eks-ubuntu-inference",
        "gb300-eks-ubuntu-inference-dynamo", "gb300-eks-ubuntu-training", "gb300-eks-ubuntu-training-kubeflow",
        "gb300-eks-ubuntu-training-slurm", "gb300-generic-ubuntu-training", "gb300-gke-cos-training",
        "h100-eks-amazonlinux-inference", "h100-eks-ubuntu-training-kueue", "h100-gke-cos-training-kueue",
        "h100-kind-training-kueue", "h200-k0s-ubuntu-training", "k0s-training", "rke2", "rke2-training",
        "vr200-rke2-ubuntu-training",
    ]  # fmt: skip


@pytest.mark.parametrize("component", CATALOGUE.components.values(), ids=lambda c: c.name)
def test_every_pin_has_a_source_and_a_month(component: Component) -> None:
    assert len(component.pin.source) > 10
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", component.pin.date)
    if component.unavailable:
        assert "confirmed" in component.unavailable


CRD = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")


def test_crds_are_full_names_and_each_has_one_provider_in_a_recipe() -> None:
    providers: dict[str, list[str]] = {}
    for component in CATALOGUE.components.values():
        assert len(set(component.crds.provides)) == len(component.crds.provides), component.name
        for crd in component.crds.provides:
            assert CRD.fullmatch(crd), crd
            providers.setdefault(crd, []).append(component.name)
    # The same product for OpenShift and elsewhere never stands in one recipe.
    for crd, names in providers.items():
        assert len([n for n in names if "-ocp" not in n]) <= 1, (crd, names)


def test_a_need_names_a_crd_that_some_component_provides() -> None:
    provided = {crd for c in CATALOGUE.components.values() for crd in c.crds.provides}
    for component in CATALOGUE.components.values():
        for need in component.needs:
            assert need.crd in provided, (component.name, need.crd)
            assert need.when or need.default, f"{component.name}: a need that never holds"


def plural(kind: str) -> str:
    lower = kind.lower()
    if re.search(r"[^aeiou]y$", lower):
        return lower[:-1] + "ies"
    return lower + ("es" if re.search(r"(s|x|z|ch|sh)$", lower) else "s")


def test_manifests_of_a_known_group_are_of_a_provided_kind() -> None:
    provided = {crd for c in CATALOGUE.components.values() for crd in c.crds.provides}
    groups = {crd.split(".", 1)[1] for crd in provided}
    found = 0
    for key, objects in CATALOGUE.manifests.items():
        for item in objects:
            group = item["apiVersion"].rpartition("/")[0]
            if group in groups:
                found += 1
                names = {f"{plural(item['kind'])}.{group}", f"{item['kind'].lower()}.{group}"}
                assert names & provided, key
    assert found > 20


# Health rules ---------------------------------------------------------------------------------------------------

RULES = [(c.name, at, rule) for c in CATALOGUE.components.values() for at, rule in enumerate(c.health)]


def judged(rule: Health, item: dict[str, Any]) -> AssertionResult:
    return by_rule(rule.expect, rule.why, item).result


def condition(kind: str, status: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Other", "status": "True"}, {"type": kind, "status": status}]}}


def good_and_bad(rule: Health) -> tuple[dict[str, Any], dict[str, Any]]:
    """An object that is well and one that is not, made from the fields that the rule reads."""
    if match := re.search(r'c\.type == "(\w+)"', rule.expect):
        return condition(match[1], "True"), condition(match[1], "False")
    if match := re.search(r'object\.status\.(\w+) == "(\w+)"', rule.expect):
        return {"status": {match[1]: match[2]}}, {"status": {match[1]: "else"}}
    if "availableReplicas" in rule.expect:
        return {"status": {"availableReplicas": 2}}, {"status": {"availableReplicas": 0}}
    match = re.fullmatch(r'object\.metadata\.name == "([\w-]+)"', rule.expect)
    assert match is not None, rule.expect
    return {"metadata": {"name": match[1]}}, {"metadata": {"name": "else"}}


@pytest.mark.parametrize(("name", "at", "rule"), RULES, ids=[f"{n}-{a}" for n, a, _ in RULES])
def test_a_health_rule_tells_good_bad_and_unknown_apart(name: str, at: int, rule: Health) -> None:
    good, bad = good_and_bad(rule)
    assert judged(rule, good) is AssertionResult.PASSED
    assert judged(rule, bad) is AssertionResult.FAILED
    assert judged(rule, {}) is AssertionResult.UNKNOWN, "an object without a status is neither well nor ill"
    assert rule.why.endswith(".")
    assert len(rule.why) < 200
    assert rule.plural == plural(rule.kind)
    assert not (rule.cluster_wide and rule.namespace)


@pytest.mark.parametrize(("name", "at", "rule"), RULES, ids=[f"{n}-{a}" for n, a, _ in RULES])
def test_a_status_without_the_field_is_no_pass(name: str, at: int, rule: Health) -> None:
    assert judged(rule, {"status": {}, "metadata": {}}) is not AssertionResult.PASSED


def test_what_only_the_component_knows_is_asserted() -> None:
    kinds = {(name, rule.kind) for name, _, rule in RULES}
    assert kinds >= {
        ("gpu-operator", "ClusterPolicy"), ("gpu-operator-ocp", "ClusterPolicy"),
        ("network-operator-ocp", "NicClusterPolicy"), ("nfd-ocp", "NodeFeatureDiscovery"),
        ("nodewright-customizations", "NodeWright"), ("rdma-netns-exclusive", "NodeWright"),
        ("kube-prometheus-stack", "Prometheus"), ("kube-prometheus-stack", "Alertmanager"),
        ("kueue", "ClusterQueue"), ("kueue", "LocalQueue"), ("slurm-accounting-mariadb", "MariaDB"),
        ("slinky-slurm", "NodeSet"), ("kai-scheduler", "Queue"), ("kai-scheduler", "Deployment"),
        ("agentgateway", "Gateway"), ("cert-manager-ocp-olm", "ClusterServiceVersion"),
    }  # fmt: skip


def test_components_that_are_tuned_per_kind_of_node_are_installed_per_pool() -> None:
    pooled = [c for c in CATALOGUE.components.values() if c.scope is Scope.POOL]
    assert [c.name for c in pooled] == ["nodewright-customizations"]
    assert all(c.placement.accelerated_selectors for c in pooled)


# Value paths ----------------------------------------------------------------------------------------------------

NOT_RECORDED = {
    "aws-ebs-csi-driver", "gatekeeper", "gcp-driver-installer", "kube-prometheus-stack", "nvcre", "nvsentinel",
    "psmdb-operator",
}  # fmt: skip


def used_paths() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """(component, path, who uses it) for every value path in the data."""
    for component in CATALOGUE.components.values():
        name, placement = component.name, component.placement
        texts = [
            t if isinstance(t, str) else t.path
            for field in placement.__struct_fields__
            for t in getattr(placement, field)
        ]
        texts += [*component.node_count_paths, *component.storage.class_paths, *component.storage.shared_class_paths]
        texts += [n.when for n in component.needs if n.when]
        texts += [s.unless_false for s in component.secrets if s.unless_false]
        yield from ((name, parse_path(t), f"components/{name}.yaml") for t in texts)
        yield from ((name, path, f"components/{name}.yaml") for path, _ in leaves(component.values))
    patches = [(s.name, p) for s in CATALOGUE.overlays.values() for p in s.components.items()]
    patches += [(s.name, p) for s in CATALOGUE.mixins.values() for p in s.components.items()]
    profiles = [(s.name, s.profile) for s in CATALOGUE.overlays.values() if s.profile is not None]
    patches += [(n, p) for n, profile in profiles for v in profile.values.values() for p in v.components.items()]
    for where, (name, patch) in patches:
        yield from ((name, path, where) for path, _ in leaves(patch.values))
    for key, objects in CATALOGUE.manifests.items():
        yield from ((key.split("/")[0], parse_path(t), f"manifests/{key}") for t in value_paths(objects))


def test_every_value_path_in_the_data_is_one_that_its_chart_knows() -> None:
    unrecorded, wrong = set(), []
    for name, path, where in used_paths():
        known = known_paths(name)
        if known is None:
            unrecorded.add(name)
        elif known.unknown(path) is not None:
            wrong.append(f"{where}: {name}:{path_text(path)}")
    assert wrong == []
    assert unrecorded == NOT_RECORDED


def test_values_for_our_manifests_alone_are_recorded_as_such() -> None:
    """A path that a manifest reads is the chart's own or listed as the manifests'."""
    for key, objects in CATALOGUE.manifests.items():
        component = key.split("/")[0]
        for text in value_paths(objects):
            known = known_paths(component)
            assert known is None or known.unknown(parse_path(text)) is None, (key, text)


@pytest.mark.parametrize(
    ("component", "path"),
    [("gpu-operator", "driver.version"), ("kueue", "quotas.gpu"), ("nfd", "topologyUpdater.createCRDs")],
)
def test_values_of_the_catalogue_are_reachable(component: str, path: str) -> None:
    known = known_paths(component)
    assert known is not None
    assert known.unknown(parse_path(path)) is None
    assert component != "gpu-operator" or get(CATALOGUE.components[component].values, parse_path(path)) is not ABSENT
