"""From the nodes that a certification names to the plan: cells of equal nodes, and who cannot be tested. Pure."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

from muster.certify.catalogue import CatalogueTest, Profile, Scope, tests_for
from muster.certify.claimed_gpus import GPU_DRIVER
from muster.certify.isolation.plan import Cell, Member, Plan, UntestedNode
from muster.certify.nodes import HealthFacts, NodeFacts, identity
from muster.resources.certification import CertificationSpec, Purpose, Reason

Kind = tuple[str, str, str]
"""Product, platform and instance type: nodes that differ in one of them are certified apart."""


OUT_OF_USE = ("quarantined", "draining", "repairing", "out-of-service")
"""Values of the hold taint with which a node waits for something else than a test."""


def selected(selector: Mapping[str, str], nodes: Mapping[str, NodeFacts]) -> tuple[str, ...]:
    """Nodes that bear all labels of `selector`, sorted; none for an empty selector."""
    if not selector:
        return ()
    wanted = sorted(selector.items())
    return tuple(sorted(n for n, facts in nodes.items() if all(facts.labels.get(k) == v for k, v in wanted)))


def targets_of(spec: CertificationSpec, nodes: Mapping[str, NodeFacts]) -> tuple[str, ...]:
    """Nodes that get a verdict: those named and those selected, sorted."""
    return tuple(sorted({*spec.nodes, *selected(spec.node_selector, nodes)}))


def make_plan(
    name: str,
    spec: CertificationSpec,
    profile: Profile,
    nodes: Mapping[str, NodeFacts],
    healths: Mapping[str, HealthFacts],
    taken: Mapping[str, str] | None = None,
    busy: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of certification `name` over the nodes as they are now.

    Different architectures become cells of their own: they are never outvoted by each other. `taken`: partner -> the
    certification that uses it; such a partner is left out. `busy`: node -> the pod that has its GPUs. A certification
    by the node controller knows why its nodes are held and cordoned; one that a person asks for leaves out what
    people cordoned, what is held for a fault and what is busy. The same input gives the same plan.

    Raises BadInputError for tests that cannot be run.
    """
    targets = list(targets_of(spec, nodes))
    by_hand = spec.purpose is Purpose.MANUAL
    asked = frozenset(targets)
    partners = sorted(p for p in dict.fromkeys(spec.partners) if p not in asked and p not in (taken or {}))
    common = _common_gpus([nodes[n] for n in (*targets, *partners) if n in nodes])
    untested: list[UntestedNode] = []
    cells: dict[Kind, tuple[list[Member], list[Member]]] = {}
    for index, names in enumerate((targets, partners)):
        for node_name in names:
            node = nodes.get(node_name)
            obstacle = _obstacle(node_name, node, common, spec)
            if obstacle is None and node is not None and by_hand:
                obstacle = _use(node, (busy or {}).get(node_name, ""))
            if obstacle is not None:
                untested += [obstacle] if index == 0 else []
            elif node is not None:
                member = Member(name=node.name, domain=node.domain, identity=identity(node, healths.get(node.name)))
                cells.setdefault(_kind(node), ([], []))[index].append(member)
    tests = tests_for(spec)
    return Plan(
        seed=zlib.crc32(name.encode()),
        tests=tests,
        expected_transport=spec.expected_transport,
        floors=dict(spec.floors),
        matchings=profile.matchings,
        weakest_rate=profile.weakest_rate,
        budget=spec.budget,
        cells=tuple(
            Cell(
                product=kind[0],
                platform=kind[1],
                gpus=common[kind],
                rails=spec.pods.nics,
                targets=tuple(_along_topology(cells[kind][0])),
                partners=tuple(_along_topology(cells[kind][1])),
            )
            for kind in sorted(cells)
            if cells[kind][0]
        ),
        untested=tuple(untested),
        notes=tuple(
            note
            for kind in sorted(cells)
            if _is_alone(cells[kind]) and (note := _alone(cells[kind][0][0].name, kind, tests))
        ),
    )


def _is_alone(members: tuple[list[Member], list[Member]]) -> bool:
    targets, partners = members
    return len(targets) == 1 and not partners


def _alone(node: str, kind: Kind, tests: Sequence[CatalogueTest]) -> str:
    """What is known from the start of a node that nothing can be run with."""
    together = [t.name for t in tests if t.scope is not Scope.NODE and not t.variant_of]
    if not together:
        return ""
    return (
        f"{node} is the only node of its kind ({kind[0] or 'unknown GPU'}) here: without a partner "
        f"{', '.join(together)} cannot run, and it cannot pass; name a partner of its kind."
    )


def members_of(plan: Plan) -> dict[str, Member]:
    """Everybody who takes part, by name, in plan order."""
    return {m.name: m for cell in plan.cells for m in (*cell.targets, *cell.partners)}


def gpus_of(plan: Plan) -> dict[str, int]:
    """GPUs that a test takes on each node."""
    return {m.name: cell.gpus for cell in plan.cells for m in (*cell.targets, *cell.partners)}


def _kind(node: NodeFacts) -> Kind:
    return (node.product, node.platform, node.instance_type)


def _common_gpus(nodes: Sequence[NodeFacts]) -> dict[Kind, int]:
    """GPUs that most nodes of a kind offer; of equally frequent numbers the larger."""
    counts: dict[Kind, Counter[int]] = {}
    for node in nodes:
        counts.setdefault(_kind(node), Counter())[node.gpus] += 1
    return {kind: max(seen, key=lambda gpus: (seen[gpus], gpus)) for kind, seen in counts.items()}


def _obstacle(
    name: str, node: NodeFacts | None, common: Mapping[Kind, int], spec: CertificationSpec
) -> UntestedNode | None:
    if node is None:
        return _untested(name, Reason.SCHEDULING, "There is no node of this name.")
    if not node.ready:
        return _untested(name, Reason.SCHEDULING, "The node is not Ready.")
    if node.gpus < 1:
        if spec.pods.gpu_claim_template:
            words = (
                f"The node offers no GPUs (nvidia.com/gpu is 0, and no ResourceSlice of {GPU_DRIVER} has any there)."
            )
        else:
            words = "The node offers no GPUs (nvidia.com/gpu is 0); for GPUs by claim set spec.pods.gpuClaimTemplate."
        return _untested(name, Reason.HARDWARE, words)
    usual = common[_kind(node)]
    if node.gpus != usual:
        words = f"The node offers {node.gpus} GPUs, others of its kind offer {usual}."
        return _untested(name, Reason.HARDWARE, words)
    return None


def _use(node: NodeFacts, user: str) -> UntestedNode | None:
    """What other people or Muster itself do with the node now, so that it is not for a test by hand."""
    if node.cordoned:
        return _untested(node.name, Reason.SCHEDULING, "A person cordoned the node; uncordon it to have it tested.")
    if node.held_for in OUT_OF_USE:
        words = f"Muster holds the node ({node.held_for}) and tests it itself; see 'muster node {node.name}'."
        return _untested(node.name, Reason.HARDWARE, words)
    if user:
        return _untested(node.name, Reason.SCHEDULING, f"The pod {user} has GPUs of the node; it is busy.")
    return None


def _untested(name: str, reason: Reason, message: str) -> UntestedNode:
    return UntestedNode(name=name, reason=reason, message=message)


def _along_topology(members: Sequence[Member]) -> list[Member]:
    return sorted(members, key=lambda m: (m.domain, m.name))
