"""The pure core of admission policies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sim.admission_cel import CompileError, compile_expression, maps_for_messages
from muster.sim.admission_mutations import MutationError, mutated
from muster.sim.admission_policies import Attempt, Evaluation, Policy, compiled, concerns, findings
from muster.sim.identities import User
from muster.sim.shapes import Shape


def attempt(**more: Any) -> Attempt:
    given: dict[str, Any] = {
        "operation": "CREATE",
        "group": "muster.dev",
        "version": "v1alpha1",
        "resource": "nodehealths",
        "kind": "NodeHealth",
        "subresource": "",
        "name": "n1",
        "namespace": "",
        "obj": {"metadata": {"name": "n1", "labels": {"a": "b"}}},
        "old": None,
        "user": User("jane"),
    }
    return Attempt(**{**given, **more})


def policy(**spec: Any) -> Policy:
    found, problems = compiled(json.dumps(spec).encode())
    assert problems == ()
    return found


def resource_rule(**more: Any) -> dict[str, Any]:
    found = {"apiGroups": ["muster.dev"], "apiVersions": ["v1alpha1"], "operations": ["CREATE"]}
    return {**found, "resources": ["nodehealths"], **more}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (resource_rule(), True),
        (resource_rule(apiGroups=["*"], apiVersions=["*"], operations=["*"], resources=["*"]), True),
        (resource_rule(resources=["nodehealths/status"]), False),
        (resource_rule(resources=["*/status"]), False),
        (resource_rule(resources=["nodehealths/*"]), True),
        (resource_rule(operations=["UPDATE"]), False),
        (resource_rule(apiGroups=[""]), False),
        (resource_rule(scope="Cluster"), True),
        (resource_rule(scope="Namespaced"), False),
        (resource_rule(resourceNames=["n1"]), True),
        (resource_rule(resourceNames=["n2"]), False),
    ],
)
def test_rules(rule: dict[str, Any], expected: bool) -> None:
    assert concerns({"resourceRules": [rule]}, attempt()) is expected
    assert concerns({"resourceRules": [resource_rule()], "excludeResourceRules": [rule]}, attempt()) is not expected


def test_another_version_is_equivalent_unless_exactness_is_wanted() -> None:
    rules = [resource_rule(apiVersions=["v1"])]
    assert concerns({"resourceRules": rules, "matchPolicy": "Equivalent"}, attempt())
    assert not concerns({"resourceRules": rules, "matchPolicy": "Exact"}, attempt())


def test_a_status_is_another_resource() -> None:
    status = attempt(subresource="status", operation="UPDATE", old={"metadata": {"name": "n1"}})
    rules = [resource_rule(operations=["UPDATE"], resources=["nodehealths", "nodehealths/status"])]
    assert concerns({"resourceRules": rules}, status)
    assert not concerns({"resourceRules": [resource_rule(operations=["UPDATE"])]}, status)
    assert not concerns({"resourceRules": [resource_rule(operations=["*"], resources=["*"])]}, status)


def test_selectors() -> None:
    wanted = {"objectSelector": {"matchLabels": {"a": "b"}}}
    assert concerns(wanted, attempt())
    assert not concerns(wanted, attempt(obj={"metadata": {"name": "n1"}}))
    deleted = attempt(operation="DELETE", obj=None, old={"metadata": {"name": "n1", "labels": {"a": "b"}}})
    assert concerns(wanted, deleted)
    around = {"metadata": {"name": "ns", "labels": {"team": "x"}}}
    inside = attempt(namespace="ns", namespace_object=around)
    assert concerns({"namespaceSelector": {"matchLabels": {"team": "x"}}}, inside)
    assert not concerns({"namespaceSelector": {"matchLabels": {"team": "y"}}}, inside)
    assert concerns({"namespaceSelector": {"matchLabels": {"team": "y"}}}, attempt())


OPERATORS = st.sampled_from(["object.metadata.name == 'n1'", "object.nope == 1", "false", "variables.v == 1"])


@given(st.lists(OPERATORS, min_size=1, max_size=4))
def test_failing_open_never_finds_more(expressions: list[str]) -> None:
    spec = {
        "variables": [{"name": "v", "expression": "object.nope"}],
        "validations": [{"expression": text} for text in expressions],
    }
    closed = findings(policy(**spec), attempt())
    opened = findings(policy(**spec, failurePolicy="Ignore"), attempt())
    assert [f for f in closed if f in opened] == opened
    assert len(closed) == sum(text != "object.metadata.name == 'n1'" for text in expressions)


def test_who_asks_is_seen() -> None:
    key = "authentication.kubernetes.io/node-name"
    text = f"has(request.userInfo.extra) && request.userInfo.extra['{key}'][0] == request.name"
    own = policy(validations=[{"expression": text}])
    agent = User("agent", extra={key: ("n1",)})
    assert findings(own, attempt(user=agent)) == []
    assert len(findings(own, attempt(user=agent, name="n2"))) == 1
    assert len(findings(own, attempt())) == 1


@pytest.mark.parametrize(
    "text", ["authorizer.path('/x')", "params.x", "request.options.dryRun", "quantity('1')", "1 +"]
)
def test_what_the_engine_lacks_does_not_compile(text: str) -> None:
    with pytest.raises(CompileError):
        compile_expression(text, "", ())


def test_names_inside_texts_are_no_references() -> None:
    assert compile_expression("'authorizer params variables.x' == ''", "bool", ()).variables == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Object{spec: Object.spec{replicas: 1}}", "{'spec': {'replicas': 1}}"),
        (
            '[JSONPatch{op: "add", path: "/a", value: x ? y : z}]',
            "[{'op': \"add\", 'path': \"/a\", 'value': x ? y : z}]",
        ),
        ('Object{metadata: Object.metadata{labels: {"a": b}}}', "{'metadata': {'labels': {\"a\": b}}}"),
        ('"Object{a: b}" + myObject.a', '"Object{a: b}" + myObject.a'),
        ("Object{?spec: optional.none()}", "{?'spec': optional.none()}"),
    ],
)
def test_messages_become_maps(text: str, expected: str) -> None:
    assert maps_for_messages(text) == expected


@given(st.text(max_size=80))
def test_any_text_is_rewritten_without_failing(text: str) -> None:
    assert isinstance(maps_for_messages(text), str)


def apply(expression: str, obj: dict[str, Any], kind: str = "ApplyConfiguration") -> dict[str, Any]:
    field = "jsonPatch" if kind == "JSONPatch" else "applyConfiguration"
    found = policy(mutations=[{"patchType": kind, field: {"expression": expression}}])
    top = ("spec", "status")
    shape = Shape.builtin("Node")
    return mutated(Evaluation(found, attempt(obj=obj)), found.mutations[0], obj, shape, top)


def test_an_applied_configuration_keeps_what_it_does_not_name() -> None:
    node = {"metadata": {"labels": {"a": "b"}}, "spec": {"taints": [{"key": "x"}]}}
    changed = apply(
        'Object{metadata: Object.metadata{labels: {"c": "d"}}, spec: Object.spec{unschedulable: true}}', node
    )
    assert changed == {
        "metadata": {"labels": {"a": "b", "c": "d"}},
        "spec": {"taints": [{"key": "x"}], "unschedulable": True},
    }
    assert node == {"metadata": {"labels": {"a": "b"}}, "spec": {"taints": [{"key": "x"}]}}


@pytest.mark.parametrize(
    ("kind", "expression", "error"),
    [
        ("ApplyConfiguration", "Object{spec: Object.spec{taints: []}}", "may not mutate atomic arrays"),
        ("ApplyConfiguration", "Object{nope: 1}", ".nope: field not declared in schema"),
        ("ApplyConfiguration", "Object{spec: Object.spec{x: object.nope}}", "no such key: nope"),
        ("JSONPatch", '[JSONPatch{op: "remove", path: "/nope"}]', "JSON Patch: "),
    ],
)
def test_mutations_that_fail(kind: str, expression: str, error: str) -> None:
    with pytest.raises(MutationError) as failed:
        apply(expression, {"metadata": {}}, kind)
    assert error in str(failed.value)
