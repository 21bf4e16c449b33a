"""The pure core of role-based access control."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.sim.identities import ADMIN_GROUP, ANONYMOUS, User, account_user
from muster.sim.rbac import Attributes, Decision, Rule, aggregated_rules, allows, decide, grants_of, not_covered

VERBS, GROUPS, RESOURCES = ("get", "list", "*"), ("", "apps", "*"), ("pods", "pods/status", "*/status", "*")
NAMES = ("a", "b")


def some(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True).map(tuple)


RULES = st.builds(
    Rule,
    verbs=some(VERBS),
    groups=some(GROUPS),
    resources=some(RESOURCES),
    names=st.one_of(st.just(()), some(NAMES)),
)
ASKED = st.builds(
    Attributes,
    verb=st.sampled_from(("get", "list")),
    group=st.sampled_from(("", "apps", "batch")),
    resource=st.sampled_from(("pods", "nodes")),
    subresource=st.sampled_from(("", "status", "eviction")),
    name=st.sampled_from(("", *NAMES, "c")),
)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=3), ASKED)
def test_what_is_covered_allows_nothing_new(owned: list[Rule], wanted: list[Rule], asked: Attributes) -> None:
    if not_covered(owned, wanted):
        return
    if any(allows(rule, asked) for rule in wanted):
        assert any(allows(rule, asked) for rule in owned)


@given(st.lists(RULES, max_size=4))
def test_everybody_may_hand_on_his_own_rules(rules: list[Rule]) -> None:
    assert not_covered(rules, rules) == []


@given(st.lists(RULES, min_size=1, max_size=3))
def test_who_holds_nothing_covers_nothing(rules: list[Rule]) -> None:
    missing = not_covered([], rules)
    assert missing
    assert missing == sorted(missing, key=str)


@given(RULES, ASKED)
def test_a_rule_without_names_is_wider(rule: Rule, asked: Attributes) -> None:
    wide = Rule(rule.verbs, rule.groups, rule.resources)
    assert allows(wide, asked) or not allows(rule, asked)


@given(RULES)
def test_rules_survive_their_json(rule: Rule) -> None:
    assert Rule.read(rule.to_json()) == rule


@given(
    st.recursive(
        st.none() | st.text(max_size=3) | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_rules_of_any_shape_are_read(raw: Any) -> None:
    assert not allows(Rule.read(raw), Attributes("get", "", "pods"))


def test_patterns() -> None:
    status = Rule(("get",), ("",), ("*/status",))
    assert allows(status, Attributes("get", "", "nodes", "status"))
    assert not allows(status, Attributes("get", "", "nodes"))
    everything = Rule(("*",), ("*",), ("*",))
    assert allows(everything, Attributes("create", "x", "y", "z"))
    assert not allows(everything, Attributes("get", path="/metrics"))
    paths = Rule(("get",), urls=("/api", "/api/*"))
    assert allows(paths, Attributes("get", path="/api/v1"))
    assert not allows(paths, Attributes("get", path="/apis"))
    assert not allows(paths, Attributes("post", path="/api"))
    named = Rule(("create",), ("",), ("pods",), ("a",))
    assert not allows(named, Attributes("create", "", "pods"))


def binding(name: str, *subjects: dict[str, str], namespace: str = "", role: str = "r") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"metadata": metadata, "subjects": list(subjects), "roleRef": {"kind": "ClusterRole", "name": role}}


def test_subjects() -> None:
    role = {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}

    def reason(user: User, found: dict[str, Any]) -> str:
        local = [found] if found["metadata"].get("namespace") else []
        cluster = [] if local else [found]
        grants = grants_of(user, cluster, local, lambda _kind, _where, name: role if name == "r" else None)
        return decide(grants, Attributes("get", "", "pods", "", "ns")).reason

    account = account_user("ns", "agent", "uid")
    group = {"kind": "Group", "name": "system:serviceaccounts:ns"}
    start = 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to '
    assert reason(account, binding("b", group)) == f'{start}Group "system:serviceaccounts:ns"'
    subject = {"kind": "ServiceAccount", "name": "agent", "namespace": "ns"}
    assert reason(account, binding("b", subject)) == f'{start}ServiceAccount "agent/ns"'
    local = binding("b", {"kind": "ServiceAccount", "name": "agent"}, namespace="ns")
    assert reason(account, local).startswith('RBAC: allowed by RoleBinding "b/ns" of ClusterRole "r"')
    assert reason(account, binding("b", {"kind": "ServiceAccount", "name": "agent", "namespace": "other"})) == ""
    assert reason(User("jane"), binding("b", {"kind": "User", "name": "jane"})) == f'{start}User "jane"'
    assert reason(ANONYMOUS, binding("b", {"kind": "Group", "name": "system:authenticated"})) == ""
    missing = 'RBAC: clusterrole.rbac.authorization.k8s.io "x" not found'
    assert reason(User("jane"), binding("b", {"kind": "User", "name": "jane"}, role="x")) == missing
    assert decide([], Attributes("get", "", "pods")) == Decision(False)


def test_a_refusal_lists_parts_with_their_verbs_together() -> None:
    wanted = [Rule(("get", "list"), ("", "apps"), ("pods",)), Rule(("get",), urls=("/x",))]
    assert [str(rule) for rule in not_covered([Rule(("get",), ("apps",), ("*",))], wanted)] == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}',
        '{APIGroups:["apps"], Resources:["pods"], Verbs:["list"]}',
        '{NonResourceURLs:["/x"], Verbs:["get"]}',
    ]


def test_aggregation() -> None:
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    part = {"metadata": {"name": "part", "labels": {"a": "b"}}, "rules": rules}
    selector = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}, {"matchLabels": {"c": "d"}}]}
    whole = {"metadata": {"name": "whole"}, "aggregationRule": selector}
    assert aggregated_rules(whole, [part, whole]) == rules
    assert aggregated_rules(part, [part, whole]) is None


def test_administrators_are_known_by_their_group() -> None:
    assert User("x", (ADMIN_GROUP,)).unrestricted
    assert not User("system:admin").unrestricted
