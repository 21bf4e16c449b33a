"""Releases that the recipe does not have, in its namespaces or of the GPU stack. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster.configure.live.ownership import SHARED_NAMESPACES
from muster.configure.live.state import Installed, LiveState
from muster.configure.plan import Plan
from muster.configure.recipe import Recipe
from muster.configure.render.gate import gate_name, gated
from muster.resources.baseline import Drift, DriftClass

GPU_CHARTS = frozenset(
    {
        "dcgm-exporter",
        "gpu-feature-discovery",
        "gpu-operator",
        "k8s-device-plugin",
        "k8s-dra-driver-gpu",
        "kai-scheduler",
        "network-operator",
        "node-feature-discovery",
        "nvidia-device-plugin",
        "nvidia-dra-driver-gpu",
        "nvsentinel",
    }
)
"""Charts that meddle with GPUs or their nodes wherever they are installed: a second one competes with the first."""


def foreign(recipe: Recipe, plan: Plan, live: LiveState) -> Iterator[Drift]:
    """One drift for each release that is not the plan's."""
    planned = {(release.namespace, release.name) for release in plan.releases}
    planned |= {(release.namespace, gate_name(release)) for release in gated(plan)}
    namespaces = frozenset(plan.namespaces) - SHARED_NAMESPACES
    charts = GPU_CHARTS | {release.chart for release in plan.releases if release.chart}
    names: dict[tuple[str, str], list[Installed]] = {}
    for installed in live.installed:
        names.setdefault((installed.namespace, installed.name), []).append(installed)
    for namespace, name in sorted(names):
        if (namespace, name) in planned:
            continue
        told = names[namespace, name][0]
        chart = told.chart.rpartition("/")[2]
        if namespace in namespaces:
            why = f"the namespace {namespace} belongs to the recipe"
        elif chart in charts - GPU_CHARTS:
            why = f"the recipe installs the chart {chart} too"
        elif chart in charts:
            why = f"{chart} competes for the GPUs and their nodes with what the recipe installs"
        else:
            continue
        known = f" (the recipe turns {name} off)" if name in recipe.disabled else ""
        yield Drift(
            drift_class=DriftClass.FOREIGN,
            path=f"release {namespace}/{name}",
            expected=f"(absent){known}",
            found=f"{chart} {told.chart_version}".strip() or "present",
            remedy=f"{why}: remove it ('helm uninstall {name} -n {namespace}'), or add it to the recipe by a layer",
        )
