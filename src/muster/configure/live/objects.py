"""The objects of one component: are they there, and are they well? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster.configure.catalogue import Health
from muster.configure.live.check import WELL, Check, Verdict, failed, unknown, worst
from muster.configure.live.health import by_rule, by_status
from muster.configure.live.kinds import Conditioned, LiveNode, WorkloadKind, condition
from muster.configure.live.manifest import CRD_GROUP, CRD_KIND
from muster.configure.live.ownership import Belonging, Possessions
from muster.configure.live.pods import trouble
from muster.configure.live.state import Custom, LiveState
from muster.configure.live.workloads import Expectation, verdict
from muster.configure.recipe import Recipe, RecipeComponent
from muster.configure.values import is_on
from muster.resources.baseline import DriftClass

WORKLOAD_PLURALS = {
    WorkloadKind.DEPLOYMENT: "deployments.apps",
    WorkloadKind.STATEFUL_SET: "statefulsets.apps",
    WorkloadKind.DAEMON_SET: "daemonsets.apps",
    WorkloadKind.JOB: "jobs.batch",
}
CLAIMS, PODS, CRDS = "persistentvolumeclaims", "pods", "customresourcedefinitions.apiextensions.k8s.io"
API_SERVICES, SLICES = "apiservices.apiregistration.k8s.io", "endpointslices.discovery.k8s.io"
WEBHOOK_GROUP = "admissionregistration.k8s.io"
WEBHOOK_PLURALS = {
    "ValidatingWebhookConfiguration": f"validatingwebhookconfigurations.{WEBHOOK_GROUP}",
    "MutatingWebhookConfiguration": f"mutatingwebhookconfigurations.{WEBHOOK_GROUP}",
}
_NAMED = 3


def object_checks(recipe: Recipe, component: RecipeComponent, mine: Possessions, live: LiveState) -> Iterator[Check]:
    """Every check of the objects of `component`, in no promised order."""
    yield from _workloads(recipe, component, mine, live)
    yield from _pods(component, mine, live)
    yield from _crds(component, mine, live)
    yield from _claims(component, mine, live)
    yield from _webhooks(component, mine, live)
    yield from _api_services(component, mine, live)
    yield from _customs(component, mine, live)


def _check(component: RecipeComponent, kind: str, namespace: str, name: str, found: Verdict, **more: str) -> Check:
    place = f"{namespace}/{name}" if namespace else name
    flag = f" -n {namespace}" if namespace else ""
    return Check(
        f"{component.name}/{kind}/{place}",
        component.name,
        found,
        look=more.get("look") or f"'kubectl describe {kind.lower()} {name}{flag}'",
        path=f"{kind} {place}",
    )


def _gone(component: RecipeComponent, kind: str, namespace: str, name: str, live: LiveState, resource: str) -> Check:
    """An object of the release that is not there; unknown where its kind could not be read."""
    reason = live.why_unread(resource, namespace)
    found = unknown(f"{resource} could not be read: {reason}") if reason else failed("it is not there")
    place = f"{namespace}/{name}" if namespace else name
    return Check(
        f"{component.name}/{kind}/{place}",
        component.name,
        found,
        look=f"whether somebody deleted it, then {_again(component, kind)}",
        drift=DriftClass.MISSING,
        path=f"{kind} {place}",
        expected="present",
        found="absent",
    )


def _again(component: RecipeComponent, kind: str) -> str:
    """How an object comes back; a Helm bundle leaves alone what it deployed unless it is told to."""
    deploy = f"deploy {component.name} again (with a Helm bundle: deploy.sh --all)"
    source = component.source
    if kind != CRD_KIND or not source.chart:
        return deploy
    # Helm never installs the CRDs of a chart's own folder a second time.
    oci = source.repository.startswith("oci://")
    chart = f"{source.repository}/{source.chart}" if oci else f"{source.chart} --repo {source.repository}"
    return f"apply its CRDs ('helm show crds {chart} --version {source.version}') and {deploy}"


# Workloads and pods


def _workloads(recipe: Recipe, component: RecipeComponent, mine: Possessions, live: LiveState) -> Iterator[Check]:
    nodes = _nodes_of(recipe, component, live)
    placement = component.placement
    covers = bool(placement.accelerated_selectors or placement.accelerated_tolerations)
    seen = set()
    for belonging in mine.workloads:
        metadata = belonging.workload.metadata
        seen.add((belonging.kind.value, metadata.namespace, metadata.name))
        if belonging.cron_job:
            continue
        expected = Expectation(belonging.owned, nodes, covers, bool(placement.daemon_tolerations), belonging.by_label)
        found = verdict(belonging.kind, belonging.workload, live, expected)
        yield _check(component, belonging.kind.value, metadata.namespace, metadata.name, found)
    yield from _cron_jobs(component, mine)
    for (group, kind, namespace, name), owned in mine.listed.items():
        known = next((k for k in WorkloadKind if (k.group, k.value) == (group, kind)), None)
        if known is None or (kind, namespace, name) in seen:
            continue
        if known is WorkloadKind.JOB and owned.expires and not live.why_unread(WORKLOAD_PLURALS[known], namespace):
            found = unknown("it removed itself some time after its end, so how it ended cannot be seen any more")
            yield _check(component, kind, namespace, name, found, look="the events of its namespace")
        else:
            yield _gone(component, kind, namespace, name, live, WORKLOAD_PLURALS[known])


def _nodes_of(recipe: Recipe, component: RecipeComponent, live: LiveState) -> tuple[LiveNode, ...]:
    """The GPU nodes that the component is meant for: those of its pool, or all."""
    selector = next((p.node_selector for p in recipe.pools if p.name == component.pool), {})
    return tuple(n for n in live.gpu_nodes() if all(n.labels.get(k) == v for k, v in selector.items()))


def _cron_jobs(component: RecipeComponent, mine: Possessions) -> Iterator[Check]:
    """Of the Jobs that a CronJob makes, the newest one that has ended counts."""
    ended: dict[tuple[str, str], list[Belonging]] = {}
    for belonging in mine.workloads:
        if belonging.cron_job and any(
            (c := condition(belonging.workload.status.conditions, kind)) is not None and c.status == "True"
            for kind in ("Complete", "Failed")
        ):
            key = (belonging.workload.metadata.namespace, belonging.cron_job)
            ended.setdefault(key, []).append(belonging)
    for (namespace, name), jobs in ended.items():
        newest = max(jobs, key=lambda b: (str(b.workload.metadata.creation_timestamp), b.workload.metadata.name))
        broken = condition(newest.workload.status.conditions, "Failed")
        found = WELL
        if broken is not None and broken.status == "True":
            found = failed(f"its last run, {newest.workload.metadata.name}, failed ({broken.message})")
        yield _check(component, "CronJob", namespace, name, found)


def _pods(component: RecipeComponent, mine: Possessions, live: LiveState) -> Iterator[Check]:
    # A pod on a node that is down or held is the trouble of that node.
    away = {node.name for node in live.nodes if not node.in_service}
    pods = [p for p in mine.pods if p.spec.node_name not in away]
    for namespace in mine.namespaces if mine.installed else ():
        troubles = sorted(t for p in pods if p.metadata.namespace == namespace and (t := trouble(p, live.now)))
        verdicts = []
        if troubles:
            more = f"; and {len(troubles) - _NAMED} more pods" if len(troubles) > _NAMED else ""
            verdicts.append(failed(f"{'; '.join(troubles[:_NAMED])}{more}"))
        # Without the workloads it cannot be told whose the pods are.
        verdicts += [
            unknown(f"{resource} of {namespace} could not be read: {reason}")
            for resource in (PODS, *WORKLOAD_PLURALS.values(), *_custom_resources(mine))
            if (reason := live.why_unread(resource, namespace))
        ]
        yield Check(
            f"{component.name}/Pods/{namespace}",
            component.name,
            worst(verdicts),
            look=f"'kubectl get pods -n {namespace}', 'kubectl describe pod' and 'kubectl logs --previous'",
            path=f"pods of {component.name} in {namespace}",
        )


def _custom_resources(mine: Possessions) -> list[str]:
    return sorted({f"{custom.plural}.{custom.group}" for custom in mine.customs})


# What the API server needs


def _crds(component: RecipeComponent, mine: Possessions, live: LiveState) -> Iterator[Check]:
    names = {name for group, kind, _, name in mine.listed if (group, kind) == (CRD_GROUP, CRD_KIND)}
    present = {crd.metadata.name: crd for crd in live.crds}
    for name in sorted(names | set(component.crds.provides)):
        crd = present.get(name)
        if crd is None:
            yield _gone(component, CRD_KIND, "", name, live, CRDS)
            continue
        verdicts = [WELL]
        if crd.metadata.deletion_timestamp is not None:
            verdicts.append(failed("it is being deleted, and every object of its kind with it"))
        for kind in ("NamesAccepted", "Established"):
            told = condition(crd.status.conditions, kind)
            if told is None or told.status != "True":
                verdicts.append(failed(f"it is not {kind} ({told.message if told else 'no such condition yet'})"))
        yield _check(component, CRD_KIND, "", name, worst(verdicts))


def _claims(component: RecipeComponent, mine: Possessions, live: LiveState) -> Iterator[Check]:
    present = {(c.metadata.namespace, c.metadata.name): c for c in live.claims}
    for group, kind, namespace, name in mine.listed:
        if (group, kind) != ("", "PersistentVolumeClaim"):
            continue
        claim = present.get((namespace, name))
        if claim is None:
            yield _gone(component, kind, namespace, name, live, CLAIMS)
        else:
            phase = claim.status.phase
            found = WELL if phase == "Bound" else failed(f"it is {phase or 'not taken up yet'} and not Bound")
            yield _check(component, kind, namespace, name, found)


def _webhooks(component: RecipeComponent, mine: Possessions, live: LiveState) -> Iterator[Check]:
    for group, kind, _, name in mine.listed:
        if group != WEBHOOK_GROUP or kind not in WEBHOOK_PLURALS:
            continue
        found = next((c for c in live.webhooks.get(kind, ()) if c.metadata.name == name), None)
        if found is None:
            yield _gone(component, kind, "", name, live, WEBHOOK_PLURALS[kind])
            continue
        verdicts = [WELL]
        for webhook in found.webhooks or ():
            service = webhook.client_config.service
            if service is not None:
                verdicts.append(_service(service.namespace, service.name, live))
                if not webhook.client_config.ca_bundle:
                    verdicts.append(failed(f"the webhook {webhook.name} has no CA bundle, so no call to it succeeds"))
        yield _check(component, kind, "", name, worst(verdicts))


def _service(namespace: str, name: str, live: LiveState) -> Verdict:
    """Whether anything stands behind a Service; without it the API server's calls fail."""
    if reason := live.why_unread(SLICES, namespace):
        return unknown(f"whether the service {namespace}/{name} has endpoints cannot be told: {reason}")
    slices = [
        s
        for s in live.endpoint_slices
        if s.metadata.namespace == namespace and (s.metadata.labels or {}).get("kubernetes.io/service-name") == name
    ]
    return WELL if any(s.ready for s in slices) else failed(f"nothing is ready behind the service {namespace}/{name}")


def _api_services(component: RecipeComponent, mine: Possessions, live: LiveState) -> Iterator[Check]:
    present: dict[str, Conditioned] = {s.metadata.name: s for s in live.api_services}
    for group, kind, _, name in mine.listed:
        if (group, kind) != ("apiregistration.k8s.io", "APIService"):
            continue
        service = present.get(name)
        if service is None:
            yield _gone(component, kind, "", name, live, API_SERVICES)
            continue
        told = condition(service.status.conditions, "Available")
        if told is not None and told.status == "True":
            found = WELL
        else:
            found = failed(f"it is not available ({told.message if told else 'no such condition yet'})")
        yield _check(component, kind, "", name, found)


# Custom resources


def _customs(component: RecipeComponent, mine: Possessions, live: LiveState) -> Iterator[Check]:
    ruled: set[tuple[str, str, str, str]] = set()
    for rule in component.health:
        if rule.when and not is_on(component.values, rule.when, rule.default):
            continue
        for custom, found in _by_rule(component, rule, live):
            name = custom.name if custom is not None else rule.name or "*"
            namespace = (
                custom.namespace if custom is not None else "" if rule.cluster_wide else _space(component, rule)
            )
            if custom is not None:
                ruled.add((custom.group, custom.kind, custom.namespace, custom.name))
            flag = f" -n {namespace}" if namespace else ""
            group = rule.api_version.rpartition("/")[0]
            look = "" if custom is not None or rule.name else f"'kubectl get {rule.plural}.{group}{flag}'"
            yield _check(component, rule.kind, namespace, name, found, look=look)
    for custom in mine.customs:
        key = (custom.group, custom.kind, custom.namespace, custom.name)
        found_or_none = by_status(custom.object) if key not in ruled else None
        if found_or_none is not None:
            yield _check(component, custom.kind, custom.namespace, custom.name, found_or_none)
    yield from _gone_customs(component, mine, live)


def _gone_customs(component: RecipeComponent, mine: Possessions, live: LiveState) -> Iterator[Check]:
    """Custom resources of the releases that are not there any more."""
    present = {(c.group, c.kind, c.namespace, c.name) for c in live.customs}
    definitions = {(crd.spec.group, crd.spec.names.kind): crd for crd in live.crds}
    ruled = {(rule.api_version.rpartition("/")[0], rule.kind, rule.name) for rule in component.health}
    for group, kind, namespace, name in mine.listed:
        crd = definitions.get((group, kind))
        if crd is None or (group, kind, name) in ruled:
            continue
        space = "" if crd.spec.scope == "Cluster" else namespace
        resource = crd.metadata.name
        looked = {(resource, space), (resource, "")} & live.looked_at
        if looked and (group, kind, space, name) not in present:
            yield _gone(component, kind, space, name, live, resource)


def _space(component: RecipeComponent, rule: Health) -> str:
    return rule.namespace or component.namespace


def _by_rule(component: RecipeComponent, rule: Health, live: LiveState) -> list[tuple[Custom | None, Verdict]]:
    group = rule.api_version.rpartition("/")[0]
    space = "" if rule.cluster_wide else _space(component, rule)
    resource = f"{rule.plural}.{group}" if group else rule.plural
    if reason := live.why_unread(resource, space):
        return [(None, unknown(f"{resource} could not be read: {reason}"))]
    customs = [
        c
        for c in live.customs
        if (c.group, c.kind, c.namespace) == (group, rule.kind, space) and rule.name in ("", c.name)
    ]
    if not customs:
        return [(None, failed("there is none"))]
    return [(custom, by_rule(rule.expect, rule.why, custom.object)) for custom in customs]
