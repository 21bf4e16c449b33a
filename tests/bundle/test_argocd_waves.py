"""A model of how Argo CD syncs an app of apps, over the Applications of a bundle and with the real health rule.

The parent applies one wave and goes on when every Application of it is healthy; one that is Degraded fails the sync,
and the parent begins again. The controller of a child lags behind: it notices, compares, syncs, looks again, and its
objects become healthy later still. Each of these steps may happen at any time.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import yamlio
from muster.configure.bundles.build import Deployer
from tests.bundle.cases import bundle_of
from tests.bundle.test_argocd_health import NOW, assess

Rule = Callable[[dict[str, Any], datetime], str]
WAVE = "argocd.argoproj.io/sync-wave"
STEPS = 2000
TICK = timedelta(seconds=0.3)
"""Several things happen within one second, and the times of the API have no smaller unit."""


def our_rule(application: dict[str, Any], now: datetime) -> str:
    return assess(application, now)[0]


def plain_rule(application: dict[str, Any], now: datetime) -> str:
    """What Argo CD's documentation proposes: the health that the Application itself shows."""
    found: str = application.get("status", {}).get("health", {}).get("status", "Progressing")
    return found


def no_rule(application: dict[str, Any], now: datetime) -> str:
    """Argo CD since 1.8: an object without a health rule counts as healthy."""
    return "Healthy"


@dataclass
class Time:
    now: datetime = NOW

    def __str__(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Child:
    """One Application and the controller behind it."""

    live: dict[str, Any]
    stays_different: bool
    fails_once: bool
    time: Time
    synced_version: dict[str, Any] | None = None
    """Source whose objects are in the cluster."""
    healthy_version: dict[str, Any] | None = None
    """Source whose objects are in the cluster and healthy: the truth, which no status has to know yet."""

    @property
    def ready(self) -> bool:
        return self.healthy_version == self.live["spec"]["source"]

    def _look(self) -> None:
        """A comparison: status says what the cluster holds at this moment."""
        source = self.live["spec"]["source"]
        same = self.synced_version == source and not self.stays_different
        health = "Missing" if self.synced_version is None else "Progressing"
        if self.healthy_version is not None and self.healthy_version == self.synced_version:
            health = "Healthy"
        status = self.live.setdefault("status", {})
        status["sync"] = {
            "status": "Synced" if same else "OutOfSync",
            "comparedTo": {"source": copy.deepcopy(source), "destination": self.live["spec"]["destination"]},
        }
        status["health"] = {"status": health}
        status["reconciledAt"] = str(self.time)

    def step(self) -> None:
        """The controller does the next thing."""
        status = self.live.setdefault("status", {})
        source = self.live["spec"]["source"]
        operation = status.get("operationState", {})
        if status.get("sync", {}).get("comparedTo", {}).get("source") != source:
            self._look()
        elif operation.get("phase") == "Running":
            done = {"finishedAt": str(self.time), "syncResult": {"source": copy.deepcopy(source)}}
            if self.fails_once:
                self.fails_once = False
                status["operationState"] = operation | done | {"phase": "Failed", "message": "refused"}
            else:
                self.synced_version = copy.deepcopy(source)
                status["operationState"] = operation | done | {"phase": "Succeeded"}
        elif self.synced_version != source:
            # A failed operation is begun again by a person, or by a change.
            status["operationState"] = {"phase": "Running", "startedAt": str(self.time)}
        elif self.healthy_version != source and status["health"]["status"] == "Progressing":
            self.healthy_version = copy.deepcopy(source)
        else:
            self._look()


@dataclass
class Parent:
    """The sync of the parent Application, and what it did."""

    desired: dict[str, dict[str, Any]]
    children: dict[str, Child]
    rule: Rule
    time: Time
    wave: int | None = None
    done: bool = False
    started: list[str] = field(default_factory=list)
    too_early: list[str] = field(default_factory=list)

    def wave_of(self, name: str) -> int:
        return int(self.desired[name]["metadata"]["annotations"][WAVE])

    def step(self) -> None:
        if self.wave is not None:
            health = [
                self.rule(self.children[n].live, self.time.now) for n in self.desired if self.wave_of(n) == self.wave
            ]
            if "Degraded" in health:
                self.wave = None
            elif any(found != "Healthy" for found in health):
                return
        waves = sorted({self.wave_of(n) for n in self.desired})
        later = [w for w in waves if self.wave is None or w > self.wave]
        if not later:
            self.done = True
            return
        self.wave = later[0]
        for name in sorted(n for n in self.desired if self.wave_of(n) == self.wave):
            late = [n for n in self.desired if self.wave_of(n) < self.wave and not self.children[n].ready]
            # A Degraded child lets the parent begin again: what it applied before is not applied anew.
            if self.children[name].live["spec"] != self.desired[name]["spec"]:
                self.too_early += [f"{name} before {n}" for n in late]
                self.started.append(name)
            self.children[name].live["spec"] = copy.deepcopy(self.desired[name]["spec"])


def applications(name: str) -> dict[str, dict[str, Any]]:
    files = bundle_of(name, Deployer.ARGOCD)[1]
    found = [yamlio.loads(files[n], n) for n in sorted(files) if n.startswith("applications/")]
    return {document["metadata"]["name"]: document for document in found}


def deploy(rule: Rule, seed: int, *, upgrade: bool, failures: bool = False) -> Parent:
    """Run to the end in an order of steps that `seed` decides."""
    dice = random.Random(seed)
    time = Time()
    desired = applications("h100-any")
    children = {}
    for name, document in desired.items():
        live = copy.deepcopy(document)
        if upgrade:
            live["spec"]["source"]["targetRevision"] = "v0.0.1"
        else:
            live["spec"] = {}
        child = Child(live, dice.random() < 0.3, failures and dice.random() < 0.3, time)
        if upgrade:
            source = live["spec"]["source"]
            child.synced_version = child.healthy_version = copy.deepcopy(source)
            live["status"] = {
                "operationState": {
                    "phase": "Succeeded",
                    "startedAt": str(time),
                    "finishedAt": str(time),
                    "syncResult": {"source": copy.deepcopy(source)},
                }
            }
            child._look()
        children[name] = child
    parent = Parent(desired, children, rule, time)
    for _ in range(STEPS):
        applied = [c for c in children.values() if c.live["spec"]]
        actor = dice.choice([parent, *applied])
        actor.step()
        time.now += TICK
        if parent.done:
            return parent
    return parent


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_a_wave_starts_when_those_before_are_ready(seed: int, upgrade: bool, failures: bool) -> None:
    parent = deploy(our_rule, seed, upgrade=upgrade, failures=failures)
    assert parent.too_early == []
    assert parent.done
    assert sorted(parent.started) == sorted(parent.desired)


@pytest.mark.parametrize(("rule", "upgrade"), [(no_rule, False), (no_rule, True), (plain_rule, True)])
def test_without_the_rule_waves_do_not_wait(rule: Rule, upgrade: bool) -> None:
    """The model notices what goes wrong: without a rule always, with the plain rule when something is upgraded."""
    assert any(deploy(rule, seed, upgrade=upgrade).too_early for seed in range(20))


def test_the_bundle_has_several_waves() -> None:
    waves = {document["metadata"]["annotations"][WAVE] for document in applications("h100-any").values()}
    assert len(waves) >= 3
