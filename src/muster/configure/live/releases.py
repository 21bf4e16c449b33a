"""Is each release of the plan deployed, and from the chart and version that the recipe locks? Pure."""

from __future__ import annotations

from muster.configure.live.check import WELL, Check, Verdict, failed, unknown, worst
from muster.configure.live.ownership import tellers
from muster.configure.live.state import Installed, LiveState, Via
from muster.configure.plan import Plan, Release
from muster.configure.versions import Scheme, Version
from muster.errors import BadInputError
from muster.resources.baseline import DriftClass

SECRETS, APPLICATIONS, HELM_RELEASES = "secrets", "applications.argoproj.io", "helmreleases.helm.toolkit.fluxcd.io"
UNINSTALLED = "uninstalled"
_TELLERS = (SECRETS, APPLICATIONS, HELM_RELEASES)


def release_checks(plan: Plan, live: LiveState) -> list[Check]:
    """Two checks for each release: that it is deployed, and what is deployed."""
    return [check for release in plan.releases for check in _of(release, live)]


def unread_tellers(release: Release, live: LiveState) -> str:
    """Why it cannot be told for sure whether the release is installed; empty when it can."""
    reasons = [f"{resource}: {why}" for resource in _TELLERS if (why := live.why_unread(resource, release.namespace))]
    return "; ".join(reasons)


def _of(release: Release, live: LiveState) -> list[Check]:
    told, unread = tellers(live, release), unread_tellers(release, live)
    title = f"{release.component}/Release/{release.namespace}/{release.name}"
    where = f"release {release.namespace}/{release.name}"
    wanted = f"{release.chart} {release.version}".strip() or "the manifests of the bundle"
    if not told:
        verdict = unknown(f"whether it is installed cannot be told ({unread})") if unread else _missing(release, live)
        return [
            Check(
                title,
                release.component,
                verdict,
                look=f"'helm list -A' or the Applications of Argo CD, then deploy {wanted}",
                drift=DriftClass.MISSING,
                path=where,
                expected=wanted,
                found="absent",
            )
        ]
    deployed = worst(
        [_deployed(i) for i in told] + ([unknown(f"another deployer's view is missing ({unread})")] if unread else [])
    )
    checks = [
        Check(
            title,
            release.component,
            deployed,
            look=_look(told[0]),
            # Helm keeps the record of a removed release where it is told to.
            drift=DriftClass.MISSING if told[0].state == UNINSTALLED else DriftClass.ASSERTION,
            path=where,
            expected="deployed",
            found=told[0].state,
        )
    ]
    if not release.is_local:
        checks.append(_version(release, told, where, unread))
    return checks


def _missing(release: Release, live: LiveState) -> Verdict:
    elsewhere = sorted({i.namespace for i in live.installed if i.name == release.name})
    if elsewhere:
        return failed(f"it is not installed there; a release of that name is in {', '.join(elsewhere)}")
    return failed("it is not installed")


def _deployed(installed: Installed) -> Verdict:
    note = f": {installed.note}" if installed.note else ""
    if installed.deployed is None:
        return unknown(f"{installed.via} tells no clear state ({installed.state}{note})")
    return WELL if installed.deployed else failed(f"{installed.via} says {installed.state}{note}")


def _look(installed: Installed) -> str:
    if installed.via is Via.HELM:
        history = f"'helm history {installed.name} -n {installed.namespace}'"
        if installed.state.startswith("pending-") or installed.state == "uninstalling":
            return f"{history}; when no Helm is at work on it, deploy the bundle again, which says how to go on"
        return history if installed.deployed else f"{history}, then deploy {installed.name} again from the bundle"
    return f"the {installed.via} object of {installed.name}"


def _version(release: Release, told: list[Installed], where: str, unread: str) -> Check:
    verdicts = [v for installed in told if (v := _right_chart(release, installed)) is not None]
    if not verdicts:
        verdicts = [unknown("no deployer tells its chart and version")]
    if unread:
        verdicts.append(unknown(f"another deployer's view is missing ({unread})"))
    found = [f"{_bare(i.chart)} {i.chart_version}".strip() for i in told if i.chart]
    return Check(
        f"{release.component}/Version/{release.namespace}/{release.name}",
        release.component,
        worst(verdicts),
        look=f"who changed it ('helm history {release.name} -n {release.namespace}'), then deploy the bundle again",
        drift=DriftClass.VERSION,
        path=where,
        expected=f"{release.chart} {release.version}",
        found=", ".join(dict.fromkeys(found)),
    )


def _right_chart(release: Release, installed: Installed) -> Verdict | None:
    """None when this deployer does not tell chart and version."""
    chart = _bare(installed.chart)
    if not chart or not installed.chart_version:
        return None
    if chart != release.chart:
        return failed(f"it was installed from the chart {chart}, and the recipe has {release.chart}")
    if not same_version(installed.chart_version, release.version):
        return failed(f"it has version {installed.chart_version}, and the recipe has {release.version}")
    return WELL


def _bare(chart: str) -> str:
    """The chart's name without the path that an OCI reference may bring along."""
    return chart.rpartition("/")[2]


def same_version(a: str, b: str) -> bool:
    """Whether two chart versions are the same, whatever their spelling (`v1.2.0` is `1.2.0`)."""
    try:
        return Version.parse(a, Scheme.CHART) == Version.parse(b, Scheme.CHART)
    except BadInputError:
        return a.removeprefix("v") == b.removeprefix("v")
