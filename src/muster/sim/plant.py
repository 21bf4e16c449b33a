"""The plant: what a simulated fleet is made of, what goes wrong in it and when. From a file or drawn from a seed."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from muster import yamlio
from muster.errors import BadInputError
from muster.resources.base import Model
from muster.resources.repair import Rung
from muster.sim.defects import Appears, CuredBy, Defect, DefectKind
from muster.sim.draws import rng
from muster.sim.kernel_messages import KNOWN_XIDS
from muster.sim.world import GPUS_PER_NODE, World, node_names

MAX_NODES = 10_000
LEAST_NODES_FOR_STORY = 8
HOUR_S = 3600.0


class DriverUpdate(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new driver reaches all nodes in order, spread over `spread_s`, without a reboot."""

    at_s: float
    driver: str
    spread_s: float = 120.0


class JobMix(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` training jobs at any time, each of `nodes` whole nodes; a finished one is followed by the next.

    `duration_s` is the work of a job at the usual rate; durations vary by a quarter around it. A job first needs
    `startup_s` after its pods run, saves every `checkpoint_s`, and loses what it did since when a pod goes away.
    """

    count: int = 0
    nodes: int = 4
    duration_s: float = 2700.0
    checkpoint_s: float = 600.0
    startup_s: float = 120.0
    start_s: float = 0.0


class Refusal(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The provider fails this rung on this node and says why."""

    node: str
    rung: Rung
    message: str


class Plant(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is decided about a simulated fleet before it starts. Times count from its start, in seconds."""

    seed: int = 1
    nodes: int = 64
    domains: int = 8
    driver: str = "580.65.06"
    update: DriverUpdate | None = None
    jobs: JobMix = JobMix()
    defects: tuple[Defect, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    def last_event_s(self) -> float:
        """When the last planted event is over, in seconds from the start."""
        times = [d.after_s for d in self.defects if d.appears is Appears.TIME]
        if self.update is not None:
            times.append(self.update.at_s + self.update.spread_s)
        return max(times, default=0.0)

    def refused(self) -> tuple[tuple[str, Rung], ...]:
        return tuple((refusal.node, refusal.rung) for refusal in self.refusals)


def default_plant(seed: int = 1, nodes: int = 64, domains: int | None = None) -> Plant:
    """The acceptance story: every kind of defect once, on nodes drawn from `seed`, and a driver update.

    At bring-up a bad node (only new GPUs cure it), a slow node (a GPU reset cures it) and a bad link. Later a GSP
    timeout (XID 119), which a reset does not cure and a reboot does. With the driver update a node whose NVLink comes
    up degraded (a reboot cures it) and one whose GPU needs replacing while there is no spare: that one ends out of
    service. Raises BadInputError below eight nodes.
    """
    if nodes < LEAST_NODES_FOR_STORY:
        raise BadInputError(
            f"The story needs at least {LEAST_NODES_FOR_STORY} nodes; {nodes} were asked for. Ask for more, or for "
            "none of the story (--no-story)."
        )
    domains = max(1, nodes // 8) if domains is None else domains
    bad, slow, one_end, logged, degraded, broken, other_end = rng(seed, "plant").sample(node_names(nodes), 7)
    bad_gpu, logged_gpu, degraded_gpu, broken_gpu = rng(seed, "plant-gpus").choices(range(GPUS_PER_NODE), k=4)
    update = DriverUpdate(at_s=5 * HOUR_S, driver="580.95.05")
    plant = Plant(
        seed=seed,
        nodes=nodes,
        domains=domains,
        update=update,
        jobs=JobMix(count=max(1, nodes * 3 // 16), nodes=4),
        defects=(
            Defect(kind=DefectKind.BAD_NODE, node=bad, gpu=bad_gpu, cured_by=CuredBy.REPLACE),
            Defect(kind=DefectKind.SLOW_NODE, node=slow, factor=0.85, cured_by=CuredBy.RESET_GPU),
            Defect(kind=DefectKind.BAD_LINK, node=one_end, peer=other_end, factor=0.4, cured_by=CuredBy.NONE),
            Defect(
                kind=DefectKind.XID,
                node=logged,
                gpu=logged_gpu,
                xid=119,
                cured_by=CuredBy.REBOOT,
                appears=Appears.TIME,
                after_s=2.5 * HOUR_S,
            ),
            Defect(
                kind=DefectKind.DEGRADED_NVLINK,
                node=degraded,
                gpu=degraded_gpu,
                factor=0.45,
                cured_by=CuredBy.REBOOT,
                appears=Appears.DRIVER_UPDATE,
            ),
            Defect(
                kind=DefectKind.NEEDS_REPLACEMENT,
                node=broken,
                gpu=broken_gpu,
                cured_by=CuredBy.REPLACE,
                appears=Appears.DRIVER_UPDATE,
            ),
        ),
        refusals=(Refusal(node=broken, rung=Rung.REPLACE, message="no spare GPU board in stock"),),
    )
    check(plant, "What was asked for")
    return plant


def healthy_plant(seed: int = 1, nodes: int = 64, domains: int | None = None) -> Plant:
    """The same fleet with nothing wrong in it and no driver update."""
    domains = max(1, nodes // 8) if domains is None else domains
    plant = Plant(seed=seed, nodes=nodes, domains=domains, jobs=JobMix(count=nodes * 3 // 16, nodes=4))
    check(plant, "What was asked for")
    return plant


def load_plant(path: Path) -> Plant:
    """Read a plant file (YAML). Raises BadInputError in one sentence."""
    return parse_plant(yamlio.load(path), str(path))


def parse_plant(value: Any, source: str) -> Plant:
    """A plant from plain values. Raises BadInputError naming `source` and the place in it."""
    if not isinstance(value, dict):
        raise BadInputError(
            f"{source} is not a plant: it must be a mapping with keys such as nodes, seed and defects."
        )
    try:
        plant = msgspec.convert(value, Plant)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{source} is not a valid plant: {error}.") from error
    check(plant, source)
    return plant


def check(plant: Plant, source: str) -> None:
    """Raise BadInputError, in one sentence, on the first thing that cannot be."""
    for problem in _problems(plant):
        raise BadInputError(f"{source} is not a valid plant: {problem}.")


def _problems(plant: Plant) -> list[str]:
    if not 1 <= plant.nodes <= MAX_NODES:
        return [f"nodes must be between 1 and {MAX_NODES}, not {plant.nodes}"]
    found = []
    if not _all_finite(plant):
        found.append("every number must be finite")
    if not 1 <= plant.domains <= plant.nodes:
        found.append(f"domains must be between 1 and the number of nodes ({plant.nodes}), not {plant.domains}")
    jobs = plant.jobs
    if jobs.count < 0 or jobs.nodes < 1 or (jobs.count > 0 and jobs.nodes > plant.nodes):
        found.append(f"jobs need a count of 0 or more and 1 to {plant.nodes} nodes each")
    if min(jobs.duration_s, jobs.checkpoint_s) <= 0 or min(jobs.startup_s, jobs.start_s) < 0:
        found.append("jobs need a positive durationS and checkpointS, and no negative startupS or startS")
    if plant.update is not None and (plant.update.at_s < 0 or plant.update.spread_s < 0 or not plant.update.driver):
        found.append("update needs a driver version, and an atS and spreadS that are not negative")
    names = frozenset(node_names(plant.nodes))
    for number, defect in enumerate(plant.defects):
        found.extend(
            f"defects[{number}] ({defect.kind.value}) {problem}" for problem in _defect_problems(defect, names)
        )
    for number, refusal in enumerate(plant.refusals):
        if refusal.node not in names:
            found.append(f"refusals[{number}] names the node {refusal.node!r}, which the fleet does not have")
        if not refusal.message:
            found.append(f"refusals[{number}] needs a message")
    return found


def _all_finite(plant: Plant) -> bool:
    parts = (plant.jobs, *([plant.update] if plant.update else []), *plant.defects)
    numbers = [value for part in parts for value in msgspec.structs.astuple(part) if isinstance(value, float)]
    return all(map(math.isfinite, numbers))


def _defect_problems(defect: Defect, names: frozenset[str]) -> list[str]:
    found = [
        f"names the node {name!r}, which the fleet does not have" for name in defect.nodes() if name not in names
    ]
    is_link = defect.kind is DefectKind.BAD_LINK
    if is_link and defect.peer in ("", defect.node):
        found.append("needs a peer that is another node than its node")
    if not is_link and defect.peer:
        found.append("has a peer, which only a bad-link has")
    if is_link and defect.cured_by is not CuredBy.NONE:
        found.append("must say curedBy: none, because no repair of a node cures a link")
    if not 0 <= defect.gpu < GPUS_PER_NODE:
        found.append(f"needs a gpu between 0 and {GPUS_PER_NODE - 1}, not {defect.gpu}")
    slows = defect.kind in (DefectKind.SLOW_NODE, DefectKind.BAD_LINK, DefectKind.DEGRADED_NVLINK)
    if slows and not 0 < defect.factor < 1:
        found.append("needs a factor between 0 and 1, both excluded")
    if defect.kind is DefectKind.FLAKY_NODE and not 0 < defect.probability <= 1:
        found.append("needs a probability above 0 and at most 1")
    if defect.kind is DefectKind.XID and defect.xid not in KNOWN_XIDS:
        found.append(f"needs an xid out of {', '.join(map(str, KNOWN_XIDS))}, not {defect.xid}")
    if defect.after_s < 0 or (defect.after_s > 0) != (defect.appears is Appears.TIME):
        found.append("needs a positive afterS exactly when it says appears: time")
    return found


def build_world(plant: Plant, started: datetime) -> World:
    """The machines of `plant` at the moment of its start; its defects appear when the fleet plays it."""
    return World(seed=plant.seed, nodes=plant.nodes, domains=plant.domains, started=started, driver=plant.driver)
