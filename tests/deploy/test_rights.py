"""Roles and admission policies of the chart, as rendered: nothing is wide, and the page tells all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from muster import yamlio
from muster.operate.policy import SAFE_DEFAULT, problems
from muster.resources.base import (
    AGENT_MANAGER,
    CONTROLLER_MANAGER,
    from_object,
)
from muster.resources.crd import manifests
from muster.resources.fault_policy import FaultPolicy
from tests.deploy.chart import CHART, NAMESPACE, of_kind, one, render
from tests.deploy.values import VALUES

pytestmark = pytest.mark.full

ROOT = CHART.parents[1]

# Roles


def _rules(objects: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(account, where, rule) of every rule that is bound."""
    for kind, where in (("ClusterRole", "cluster"), ("Role", "")):
        bindings = of_kind(objects, f"{kind}Binding")
        assert len(bindings) == len(of_kind(objects, kind))
        for binding in bindings:
            (subject,) = binding["subjects"]
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", NAMESPACE)
            assert binding["roleRef"]["kind"] == kind
            role = one(objects, kind, binding["roleRef"]["name"])
            assert role["metadata"].get("namespace") == binding["metadata"].get("namespace")
            for rule in role["rules"]:
                account = subject["name"].removeprefix("muster-")
                yield account, where or role["metadata"]["namespace"], rule


FORBIDDEN = {
    "secrets",
    "pods/exec",
    "pods/log",
    "pods/attach",
    "pods/portforward",
    "serviceaccounts/token",
    "configmaps",
}


@pytest.mark.requirement("v2.4/OMA01")
def test_no_rule_is_wide(objects: list[dict[str, Any]]) -> None:
    rules = list(_rules(objects))
    baselines = any("--baselines" in str(o) for o in of_kind(objects, "Deployment"))
    assert rules
    for account, where, rule in rules:
        if rule["resources"] == ["secrets"]:
            # Tokens of workers in our own namespace; elsewhere only what Baselines are compared with.
            own = where == NAMESPACE and rule["verbs"] == ["get", "create", "delete"]
            assert account == "controller"
            assert own or (baselines and rule["verbs"] == ["list"])
        assert rule.keys() <= {"apiGroups", "resources", "verbs", "resourceNames"}
        for part in rule.values():
            assert part
            assert "*" not in "".join(part)
        if rule["resources"] == ["configmaps"]:
            # Where the deliveries of events stand: one object, by its name but for its creation.
            assert (account, where) == ("controller", NAMESPACE)
            assert rule["verbs"] == ["create"] or rule["resourceNames"] == ["muster-outputs"]
        elif rule["resources"] != ["secrets"]:
            assert not FORBIDDEN & set(rule["resources"])
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])


def test_secrets_are_listed_only_for_baselines() -> None:
    def secrets(values: Mapping[str, Any]) -> list[tuple[str, str, list[str]]]:
        return [(a, w, r["verbs"]) for a, w, r in _rules(render(values)) if "secrets" in r["resources"]]

    own = ("controller", NAMESPACE, ["get", "create", "delete"])
    assert secrets({}) == [own]
    assert secrets(VALUES["baselines"]) == [("controller", "cluster", ["list"]), own]
    for account, _, rule in _rules(render(VALUES["baselines"])):
        assert account in ("controller", "agent")
        assert "*" not in "".join([*rule["apiGroups"], *rule["resources"], *rule["verbs"]])


def test_only_force_deletes_pods_of_others() -> None:
    def deletes(values: Mapping[str, Any]) -> list[str]:
        return [w for _, w, r in _rules(render(values)) if r["resources"] == ["pods"] and "delete" in r["verbs"]]

    assert deletes({}) == ["cluster"]
    assert deletes(VALUES["no-force"]) == [NAMESPACE]


@pytest.mark.requirement("v2.4/OAL01", "v2.4/SEC04")
def test_the_table_of_rights_is_complete() -> None:
    table = (ROOT / "docs" / "install.md").read_text().split("## Rights")[1].split("\n## ")[0]
    told = [
        tuple(cell.strip() for cell in line.split("|")[1:5]) for line in table.splitlines() if line.startswith("|")
    ]
    granted = []
    for account, where, rule in _rules(render()):
        (group,), (resource,) = rule["apiGroups"], rule["resources"]
        words = [group, resource, *rule.get("resourceNames", [])]
        granted.append((account, where, " ".join(w for w in words if w), ", ".join(rule["verbs"])))
    assert sorted(told[2:]) == sorted(granted)


# Policies


def test_the_policies_name_the_accounts_that_the_pods_use() -> None:
    objects = render()
    for policy, account in (
        ("muster-agent-own-node", AGENT_MANAGER),
        ("muster-controller-verdicts", CONTROLLER_MANAGER),
    ):
        spec = one(objects, "ValidatingAdmissionPolicy", policy)["spec"]
        assert spec["failurePolicy"] == "Fail"
        user = f'"system:serviceaccount:{NAMESPACE}:{account}"'
        assert user in spec["matchConditions"][0]["expression"]
        assert one(objects, "ServiceAccount", account)
        binding = one(objects, "ValidatingAdmissionPolicyBinding", policy)["spec"]
        assert binding == {"policyName": policy, "validationActions": ["Deny"]}


def test_groups_that_break_the_glass_are_quoted() -> None:
    values = {"admissionPolicies": {"breakGlassGroups": ['a"] || true || group in ["', "b"]}}
    spec = one(render(values), "ValidatingAdmissionPolicy", "muster-controller-verdicts")["spec"]
    expression = spec["matchConditions"][1]["expression"]
    assert expression == '!request.userInfo.groups.exists(group, group in ["a\\"] || true || group in [\\"","b"])'
    without = one(render(VALUES["no-glass"]), "ValidatingAdmissionPolicy", "muster-controller-verdicts")["spec"]
    assert [c["name"] for c in without["matchConditions"]] == ["is-not-controller"]


def test_without_a_policy_the_safe_default_is_in_force() -> None:
    assert of_kind(render(), "FaultPolicy") == []
    assert SAFE_DEFAULT.spec.repair_provider == ""
    values = (CHART / "values.yaml").read_text()
    assert SAFE_DEFAULT.spec.budget is not None
    assert f"a budget of {SAFE_DEFAULT.spec.budget.max_disrupted.removesuffix('%')} %" in values


def test_the_example_of_a_policy_can_be_in_force() -> None:
    """The example in values.yaml, uncommented."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    start = lines.index("#   policy:")
    example = yamlio.loads("\n".join(line.removeprefix("#   ") for line in lines[start : start + 3]), "the example")
    spec = example["policy"]
    schema = next(m for m in manifests() if m["spec"]["names"]["kind"] == "FaultPolicy")["spec"]["versions"][0][
        "schema"
    ]
    known = schema["openAPIV3Schema"]["properties"]["spec"]["properties"]
    for section, content in spec.items():
        assert content.keys() <= known[section]["properties"].keys()
    assert problems(from_object(FaultPolicy, {"metadata": {"name": "default"}, "spec": spec})) == ()
