"""The books of one judgement: what was told, how counters grew, how long something has been bad. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from muster.agent.gpu.config import GpuConfig
from muster.agent.gpu.state import Counter, GpuState, Known
from muster.agent.sources import Probe
from muster.faults import catalogue
from muster.faults.sighting import Sighting
from muster.resources.fault import Entity, Hint, Scope, Severity

SOURCE = "gpu"
CHECK = "gpu"
MAX_COUNT = 1_000_000
Judged = tuple[Severity, Scope, Hint]


@dataclass(frozen=True)
class Growth:
    """How a counter grew since the last look."""

    by: int
    per_s: float


class Ledger:
    """Collects probes and sightings and the state after them, in the order in which they are told."""

    def __init__(self, config: GpuConfig, before: GpuState, boot_id: str, now: datetime) -> None:
        self.config = config
        self.now = now
        self._before = before
        self._boot_id = boot_id
        same_boot = before.boot_id == boot_id
        self._old_counters: Mapping[str, Counter] = before.counters if same_boot else {}
        self._old_runs: Mapping[str, int] = before.runs if same_boot else {}
        self._links: dict[str, tuple[int, ...]] = dict(before.links_up if same_boot else before.links_down)
        self._links_down: dict[str, tuple[int, ...]] = {}
        self._fresh = before.fresh if same_boot else (config.looks if before.boot_id else 0)
        self._known = frozenset(known.uuid for known in before.known)
        self._counters: dict[str, Counter] = {}
        self._runs: dict[str, int] = {}
        self.probes: list[Probe] = []
        self.sightings: list[Sighting] = []

    def tell(self, code: str, entity: Entity, healthy: bool, message: str = "", judged: Judged | None = None) -> None:
        """A state of the entity, now."""
        row = catalogue.condition(code)
        severity, scope, hint = judged or (row.severity, row.scope, row.hint)
        self.probes.append(
            Probe(
                source=SOURCE,
                check=CHECK,
                code=code,
                entity=entity,
                healthy=healthy,
                severity=severity,
                scope=scope,
                hint=hint,
                message="" if healthy else _sentence(row.name, message),
            )
        )

    def tell_flag(self, code: str, entity: Entity, bad: bool | None) -> None:
        """A flag that the GPU may not have."""
        if bad is not None:
            self.tell(code, entity, not bad)

    def tell_lasting(self, code: str, entity: Entity, bad: bool, message: str = "") -> None:
        """A state that counts only after some looks in a row; before that, nothing is said of it.

        After a boot it is unknown then: a fault of before must not look over.
        """
        key = f"{entity.key()}/{code}"
        run = min(self._old_runs.get(key, 0) + 1, self.config.looks) if bad else 0
        if run:
            self._runs[key] = run
        if not bad:
            self.tell(code, entity, True)
        elif run >= self.config.looks:
            self.tell(code, entity, False, message)
        elif self._fresh and entity.uuid in self._known:
            self._unsure(code, entity, f"{message}, and that is not confirmed yet")

    def no_rate(self, code: str, entity: Entity, key: str) -> None:
        """There is no growth of `key` to judge: it began anew with a boot or a reset, so nothing is proved yet."""
        if entity.uuid in self._known and (self._fresh or key in self._old_counters):
            self._unsure(code, entity, "errors are counted from now on")

    def _unsure(self, code: str, entity: Entity, message: str) -> None:
        words = _sentence(catalogue.condition(code).name, message)
        self.probes.append(Probe(source=SOURCE, check=CHECK, code=code, entity=entity, healthy=None, message=words))

    def happened(
        self, code: str, entity: Entity, message: str, details: dict[str, str] | None = None, count: int = 1
    ) -> None:
        """An event."""
        row = catalogue.condition(code)
        self.sightings.append(
            Sighting(
                source=SOURCE,
                check=CHECK,
                code=code,
                entity=entity,
                severity=row.severity,
                scope=row.scope,
                hint=row.hint,
                message=_sentence(row.name, message),
                at=self.now,
                count=min(count, MAX_COUNT),
                details=details or {},
            )
        )

    def xid(self, code: int, entity: Entity) -> None:
        """The source tells an XID. The kernel log tells it better, so it opens the fault but does not count it."""
        row = catalogue.xid(code)
        self.sightings.append(
            Sighting(
                source="kernel-log",
                check="xid",
                code=str(code),
                entity=entity,
                severity=row.severity,
                scope=row.scope,
                hint=row.hint,
                message=_sentence(row.name, "told by dcgm-exporter"),
                at=self.now,
                count=0,
            )
        )

    def growth(self, key: str, value: int, *, anew: bool = False) -> Growth | None:
        """Growth of a counter since the last look; None at its first value and when it fell.

        `anew`: a counter that fell began at nought (its GPU was reset), so all of its value is new.
        """
        self._counters[key] = Counter(value=value, at=self.now)
        old = self._old_counters.get(key)
        if old is None or (value < old.value and not anew):
            return None
        by = value - old.value if value >= old.value else value
        seconds = (self.now - old.at).total_seconds()
        return Growth(by, by / seconds) if seconds > 0 else None

    def links_up(self, uuid: str, up: Iterable[int]) -> tuple[int, ...]:
        """The links of the GPU that were up in this boot, with those that are up now."""
        here = {*up}
        self._links[uuid] = tuple(sorted({*self._links.get(uuid, ()), *here}))
        self._links_down[uuid] = tuple(link for link in self._links[uuid] if link not in here)
        return self._links[uuid]

    def after(self, most: int, known: tuple[Known, ...], seen: list[str], *, keep_others: bool) -> GpuState:
        """The state for the next look. `keep_others`: GPUs that were not asked this time are remembered as well."""
        remembered = {k.uuid for k in known} | set(seen) if keep_others else set(seen)
        old_counters = {k: v for k, v in self._old_counters.items() if k.partition("/")[0] in remembered}
        old_runs = {k: v for k, v in self._old_runs.items() if keep_others and k not in self._told()}
        counters = {**old_counters, **self._counters}
        runs = {**old_runs, **self._runs}
        return GpuState(
            boot_id=self._boot_id,
            most=most,
            known=known,
            counters={key: counters[key] for key in sorted(counters)},
            runs={key: runs[key] for key in sorted(runs)},
            links_up={u: self._links[u] for u in sorted(self._links) if u in remembered or keep_others},
            links_down=self._down(remembered, keep_others),
            fresh=self._fresh if keep_others else max(0, self._fresh - 1),
        )

    def _down(self, remembered: set[str], keep_others: bool) -> dict[str, tuple[int, ...]]:
        everything = {**self._before.links_down, **self._links_down}
        return {u: everything[u] for u in sorted(everything) if everything[u] and (u in remembered or keep_others)}

    def _told(self) -> set[str]:
        return {f"{probe.entity.key()}/{probe.code}" for probe in self.probes}


def _sentence(name: str, message: str) -> str:
    return f"{name}: {message}" if message else name
