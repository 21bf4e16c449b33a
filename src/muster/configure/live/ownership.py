"""Which objects belong to which component: by the release's own list, by owner references, at last by labels. Pure.

Never by literal names: a chart with another fullname, or objects in another namespace, are found all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster.configure.live.kinds import INSTANCE_LABEL, TEMPLATE_HASH, Owner, Pod, Workload, WorkloadKind
from muster.configure.live.state import Custom, Installed, LiveState, OwnedObject
from muster.configure.plan import Plan, Release

Key = tuple[str, str, str, str]
"""(group, kind, namespace, name); the namespace of a cluster-wide object is empty."""
SHARED_NAMESPACES = frozenset({"default", "kube-public", "kube-system", "kube-node-lease"})
CRON_JOB = "CronJob"


@dataclass(frozen=True)
class Belonging:
    """A workload that belongs to a component; `owned` is the entry of the release's list, where there is one."""

    kind: WorkloadKind
    workload: Workload
    owned: OwnedObject | None = None
    by_label: bool = False
    cron_job: str = ""


@dataclass
class Possessions:
    """What one component has."""

    listed: dict[Key, OwnedObject] = field(default_factory=dict)
    """Objects in the lists of its releases, the release's namespace filled in where none is stated."""
    installed: bool = False
    """Whether any of its releases is there."""
    complete: bool = True
    """False when a release is there of which nobody lists the objects."""
    workloads: list[Belonging] = field(default_factory=list)
    customs: list[Custom] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    namespaces: tuple[str, ...] = ()
    """Where its pods are looked for."""


def tellers(live: LiveState, release: Release) -> list[Installed]:
    """What is known of `release`, from each deployer that knows it."""
    return [i for i in live.installed if (i.namespace, i.name) == (release.namespace, release.name)]


def possessions(plan: Plan, live: LiveState) -> dict[str, Possessions]:
    """Component -> what it has, for every component of the plan."""
    components = list(dict.fromkeys(release.component for release in plan.releases))
    found = {name: Possessions() for name in components}
    for release in plan.releases:
        _take_list(found[release.component], release, tellers(live, release))
    owner_of = _owners(found)
    _take_workloads(found, owner_of, plan, live)
    _take_pods(found, owner_of, plan, live)
    return found


def _take_list(mine: Possessions, release: Release, told: list[Installed]) -> None:
    lists = [i.owned for i in told if i.owned is not None]
    mine.installed = mine.installed or bool(told)
    if told and not lists:
        mine.complete = False
    for owned in (o for each in lists for o in each):
        key = (owned.group, owned.kind, owned.namespace or release.namespace, owned.name)
        present = mine.listed.get(key)
        # Helm's list knows more of an object than Argo CD's.
        if present is None or (present.replicas is None and owned.replicas is not None):
            mine.listed[key] = owned


def _owners(found: Mapping[str, Possessions]) -> dict[Key, str]:
    owner_of: dict[Key, str] = {}
    for name, mine in found.items():
        for (group, kind, namespace, obj), owned in mine.listed.items():
            owner_of.setdefault((group, kind, namespace, obj), name)
            if not owned.namespace:
                # A cluster-wide object states no namespace either; which it is, the kind would have to tell.
                owner_of.setdefault((group, kind, "", obj), name)
    return owner_of


def component_of(owner_of: Mapping[Key, str], key: Key, owners: Iterable[Owner]) -> str:
    """The component of an object: its own entry, or that of an object that owns it; empty when it has none."""
    group, kind, namespace, name = key
    direct = owner_of.get(key) or (owner_of.get((group, kind, "", name)) if not namespace else None)
    if direct:
        return direct
    for owner in owners:
        for place in (namespace, ""):
            if found := owner_of.get((owner.group, owner.kind, place, owner.name)):
                return found
    return ""


def _take_workloads(found: dict[str, Possessions], owner_of: dict[Key, str], plan: Plan, live: LiveState) -> None:
    """Custom resources and workloads, until nothing new is found: an operator's objects own further ones."""
    customs = list(live.customs)
    workloads = [(kind, workload) for kind in WorkloadKind for workload in live.workloads.get(kind, ())]
    grown = True
    while grown:
        grown = False
        for custom in customs:
            key = (custom.group, custom.kind, custom.namespace, custom.name)
            if key not in owner_of and (name := component_of(owner_of, key, custom.owners)):
                owner_of[key] = name
                grown = True
        for kind, workload in workloads:
            key = _key(kind, workload)
            if key not in owner_of and (name := component_of(owner_of, key, _references(workload))):
                owner_of[key] = name
                grown = True
    for custom in customs:
        if name := owner_of.get((custom.group, custom.kind, custom.namespace, custom.name), ""):
            found[name].customs.append(custom)
    by_instance = _instances(found, plan)
    for kind, workload in workloads:
        key = _key(kind, workload)
        name = owner_of.get(key, "")
        by_label = not name
        if by_label:
            instance = (workload.metadata.labels or {}).get(INSTANCE_LABEL, "")
            name = by_instance.get((workload.metadata.namespace, instance), "")
        if name:
            owner_of.setdefault(key, name)
            cron = next((o.name for o in _references(workload) if o.kind == CRON_JOB), "")
            found[name].workloads.append(Belonging(kind, workload, found[name].listed.get(key), by_label, cron))


def _instances(found: Mapping[str, Possessions], plan: Plan) -> dict[tuple[str, str], str]:
    """(namespace, label `instance`) -> component, for components with a release that lists no objects."""
    return {(r.namespace, r.name): r.component for r in plan.releases if not found[r.component].complete}


def _take_pods(found: dict[str, Possessions], owner_of: Mapping[Key, str], plan: Plan, live: LiveState) -> None:
    alone = _namespaces_of_one(plan)
    for name, mine in found.items():
        spaces = {r.namespace for r in plan.of(name)} | {b.workload.metadata.namespace for b in mine.workloads}
        mine.namespaces = tuple(sorted(spaces - {""}))
    for pod in live.pods:
        namespace = pod.metadata.namespace
        key = ("", "Pod", namespace, pod.metadata.name)
        name = component_of(owner_of, key, [_above(o, pod) for o in pod.metadata.owner_references or ()])
        name = name or alone.get(namespace, "")
        if name:
            found[name].pods.append(pod)


def _namespaces_of_one(plan: Plan) -> dict[str, str]:
    """Namespaces that hold one component alone: whatever pod is there, is its."""
    components: dict[str, list[str]] = {}
    for release in plan.releases:
        components.setdefault(release.namespace, []).append(release.component)
    return {
        namespace: names[0]
        for namespace, names in components.items()
        if len(set(names)) == 1 and namespace not in SHARED_NAMESPACES
    }


def _above(owner: Owner, pod: Pod) -> Owner:
    """The Deployment in place of its ReplicaSet, whose name is the Deployment's and the hash of the template."""
    suffix = f"-{(pod.metadata.labels or {}).get(TEMPLATE_HASH, '')}"
    if owner.kind != "ReplicaSet" or suffix == "-" or not owner.name.endswith(suffix):
        return owner
    return Owner(api_version="apps/v1", kind="Deployment", name=owner.name.removesuffix(suffix))


def _references(workload: Workload) -> tuple[Owner, ...]:
    return workload.metadata.owner_references or ()


def _key(kind: WorkloadKind, workload: Workload) -> Key:
    return (kind.group, kind.value, workload.metadata.namespace, workload.metadata.name)
