"""Plans that no catalogue holds: Helm, Helmfile and Flux keep every edge, gate, policy and value of any plan."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.configure.catalogue import Gate
from muster.configure.order import order
from muster.configure.plan import CrdPolicy, Plan, Release, Role
from muster.configure.recipe import ManifestFile
from muster.configure.render import flux, helm, helmfile
from muster.configure.render.repository import Repository
from tests.bundle import read_flux, read_helm, read_helmfile
from tests.bundle.found import Found, closure
from tests.configure.test_values import trees

REPOSITORIES = (
    "https://a.example/charts",
    "https://a.example/charts/",
    "oci://a.example/charts",
    "oci://b.example:5000/x",
)
maps = st.dictionaries(st.text(), trees, max_size=3)
NAMESPACES = ("one", "two", "kube-system")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Up to seven releases; each depends on some of those before it. Some are charts inside the bundle."""
    releases: dict[str, Release] = {}
    for at in range(draw(st.integers(1, 7))):
        name = f"r{at}"
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}}
        other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ x }}"}, "data": draw(trees)}
        local = draw(st.booleans())
        source: dict[str, Any] = (
            {
                "manifests": (
                    ManifestFile(name="m.yaml", objects=draw(st.sampled_from([[], [other], [claim, other]]))),
                )
            }
            if local
            else {"repository": draw(st.sampled_from(REPOSITORIES)), "chart": "c", "version": "v1.0.0"}
        )
        releases[name] = Release(
            name=name,
            component=name,
            role=Role.MAIN,
            namespace=draw(st.sampled_from(NAMESPACES)),
            depends_on=tuple(sorted(draw(st.sets(st.sampled_from(sorted(releases)))))) if releases else (),
            gate=draw(st.sampled_from(Gate)),
            crds=draw(st.sampled_from(CrdPolicy)),
            timeout_s=draw(st.integers(1, 86400)),
            values=draw(maps),
            **source,
        )
    sequence = order({name: release.depends_on for name, release in releases.items()}).sequence
    return Plan(
        releases=tuple(releases[name] for name in sequence),
        namespaces={name: {} for name in NAMESPACES},
        recipe_digest="sha256:0",
    )


def as_found(name: str, plan: Plan) -> list[Found]:
    match name:
        case "helm":
            return read_helm.read(helm.render(plan))
        case "helmfile":
            return read_helmfile.read(helmfile.render(plan))
        case "flux":
            return read_flux.read(flux.render(plan, Repository("https://g.example/b.git", "main", "some/where")))
        case _:
            return read_flux.read(flux.render(plan, Repository("oci://g.example/b", "v1")))


@pytest.mark.parametrize("deployer", ["helm", "helmfile", "flux", "flux from a registry"])
@settings(max_examples=60)
@given(plan=plans())
def test_any_plan_reads_back(deployer: str, plan: Plan) -> None:
    found = {f.name: f for f in as_found(deployer, plan)}
    finished = closure(found.values())
    assert list(found) == [r.name for r in plan.releases]
    for release in plan.releases:
        got = found[release.name]
        assert (got.namespace, got.chart, got.version) == (release.namespace, release.chart, release.version)
        assert (got.repository, got.values) == (release.repository.rstrip("/"), release.values)
        assert (got.crds, got.gate, got.timeout_s) == (release.crds, release.gate, release.timeout_s)
        # Flux tries again without end where the other answer would take shared CRDs away.
        endless = deployer.startswith("flux") and release.crds is CrdPolicy.KEEP
        assert got.retries == (None if endless else release.retries)
        assert list(got.manifests) == [o for file in release.manifests for o in file.objects or ()]
        assert set(release.depends_on) <= finished[release.name]
