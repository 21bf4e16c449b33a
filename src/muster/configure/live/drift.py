"""How a live cluster differs from its locked recipe. Pure: same state, same drifts, in the same order.

What cannot be read is no drift; the assertions say that it is unknown. Volatile readings never are.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from muster.configure.live.assess import checks
from muster.configure.live.check import FAILED, Check
from muster.configure.live.foreign import foreign
from muster.configure.live.hand_edits import edited_customs, hand_edits
from muster.configure.live.nodes import node_drifts
from muster.configure.live.ownership import possessions, tellers
from muster.configure.live.state import LiveState
from muster.configure.live.values_drift import differences, manifest_differences
from muster.configure.plan import Plan, Release
from muster.configure.recipe import Recipe
from muster.plain_text import plain
from muster.resources.baseline import Drift, DriftClass

MAX_TEXT = 400


class Severity(StrEnum):
    """How much a drift matters, by its class."""

    CRITICAL = "critical"
    """Production work may be at risk now."""
    WARNING = "warning"
    INFO = "info"


_SEVERITY = {
    DriftClass.MISSING: Severity.CRITICAL,
    DriftClass.ASSERTION: Severity.CRITICAL,
    DriftClass.NODE_IDENTITY: Severity.CRITICAL,
    DriftClass.VERSION: Severity.WARNING,
    DriftClass.VALUES: Severity.WARNING,
    DriftClass.NODE_STACK: Severity.WARNING,
    DriftClass.FOREIGN: Severity.WARNING,
    DriftClass.NODE_CONFIG: Severity.INFO,
}


def severity(drift_class: DriftClass) -> Severity:
    return _SEVERITY[drift_class]


def drift(recipe: Recipe, plan: Plan, live: LiveState) -> tuple[Drift, ...]:
    """Every difference: components in the order of their deployment, then foreign releases, then nodes by name."""
    belongings = possessions(plan, live)
    checked = checks(recipe, plan, live, belongings)
    found = [_from_check(check) for check in checked if check.result is FAILED and check.drift]
    for release in plan.releases:
        found += _sources(release, live)
        found += _values(release, live)
        found += _manifests(release, live)
    for name, mine in belongings.items():
        found += hand_edits(name, mine)
        found += edited_customs(name, mine)
    place = {component.name: at for at, component in enumerate(recipe.components)}
    found.sort(key=lambda d: place.get(d.component, -1))
    found += foreign(recipe, plan, live)
    found += [
        Drift(drift_class=n.drift, node=n.node, path=n.path, expected=n.expected, found=n.found, remedy=n.remedy)
        for n in node_drifts(recipe, live)
    ]
    return tuple(_cleaned(each) for each in found)


def _cleaned(each: Drift) -> Drift:
    """Texts of controllers, charts and nodes, bounded and without control characters."""
    texts = {name: plain(getattr(each, name), MAX_TEXT) for name in ("node", "path", "expected", "found", "remedy")}
    return msgspec.structs.replace(each, **texts)


def _from_check(check: Check) -> Drift:
    assert check.drift is not None  # noqa: S101 - asked by the caller
    return Drift(
        drift_class=check.drift,
        component=check.component,
        node=check.node,
        path=check.path or check.name,
        expected=check.expected or "well",
        found=check.found or check.verdict.why,
        remedy=(f"{check.verdict.why}; " if check.found else "") + (f"see {check.look}" if check.look else ""),
    )


def _values(release: Release, live: LiveState) -> Iterator[Drift]:
    """The deployer that was given other values; Helm's own record goes before what an object wishes for."""
    told = [i.values for i in tellers(live, release) if i.values is not None]
    for difference in differences(release.values, told[0]) if told else ():
        yield Drift(
            drift_class=DriftClass.VALUES,
            component=release.component,
            path=f"{release.name}:{difference.path}",
            expected=difference.expected,
            found=difference.found,
            remedy=f"deploy {release.name} again from the bundle, or build the bundle with "
            f"--set {release.component}:{difference.path}=...",
        )


def _manifests(release: Release, live: LiveState) -> Iterator[Drift]:
    """Of a chart inside the bundle, whose version never changes, the objects that were applied."""
    manifest = next((i.manifest for i in tellers(live, release) if i.manifest), "")
    if not release.is_local or release.missing or not manifest:
        return
    objects = [obj for file in release.manifests for obj in file.objects or ()]
    for difference in manifest_differences(objects, manifest):
        yield Drift(
            drift_class=DriftClass.VALUES,
            component=release.component,
            path=f"{release.name}: {difference.path}",
            expected=difference.expected,
            found=difference.found,
            remedy=f"deploy {release.name} again from the bundle",
        )


def _sources(release: Release, live: LiveState) -> Iterator[Drift]:
    """The repository of the chart, where a deployer tells it (Helm's record does not)."""
    wanted = _address(f"{release.repository}/{release.chart}")
    for installed in tellers(live, release) if release.repository else ():
        source = _address(installed.source)
        if source and source not in (wanted, _address(release.repository)):
            yield Drift(
                drift_class=DriftClass.VERSION,
                component=release.component,
                path=f"release {release.namespace}/{release.name} source",
                expected=release.repository,
                found=installed.source,
                remedy=f"point the {installed.via} object of {release.name} at {release.repository} again",
            )


def _address(url: str) -> str:
    return url.removeprefix("oci://").removeprefix("https://").rstrip("/")
