"""Inferred edges: from CRDs, manifests and volumes; declared edges win, contradictions and unmet needs are errors."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.configure.catalogue import Catalogue, Crds, Need, Overlay, Patch, Storage, load
from muster.configure.catalogue import Component as Entry
from muster.configure.criteria import parse_criteria
from muster.configure.infer import LeftOut, infer, provided_outside
from muster.configure.order import order
from muster.configure.provenance import explain
from muster.configure.recipe import ManifestFile, RecipeComponent
from muster.configure.resolve import Resolution, resolve
from muster.errors import BadInputError
from tests.configure.cases import NAMES, recipe_of

MONITOR = "servicemonitors.monitoring.example.com"
SOURCE = {"kind": "helm", "repository": "https://charts.example.com", "chart": "x", "version": "1.0.0"}


def component(name: str, **fields: Any) -> RecipeComponent:
    plain = {"name": name, "source": SOURCE, "namespace": "x"}
    return msgspec.structs.replace(msgspec.convert(plain, RecipeComponent), **fields)


def provider(name: str = "crds", crd: str = MONITOR, **fields: Any) -> RecipeComponent:
    return component(name, crds=Crds(provides=(crd,)), **fields)


def edges(*components: RecipeComponent, service: str = "") -> dict[str, list[str]]:
    found = infer(components, service)
    assert found.unmet == ()
    return {name: list(needed) for name, needed in found.edges.items()}


def test_a_needed_crd_is_waited_for() -> None:
    assert edges(provider(), component("app", needs=(Need(crd=MONITOR),))) == {"app": ["crds"]}


@pytest.mark.parametrize(
    ("values", "default", "needed"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"monitor": {"enabled": True}}, False, True),
        ({"monitor": {"enabled": False}}, True, False),
        ({"monitor": {"enabled": None}}, True, False),
        ({"monitor": None}, True, False),
        ({"monitor": {}}, True, True),
        ({"monitor": {"enabled": "yes"}}, False, True),
        ({"monitor": {"enabled": ""}}, True, False),
        ({"monitor": {"enabled": 0}}, True, False),
    ],
)
def test_a_need_holds_by_the_truth_of_helm(values: dict[str, Any], default: bool, needed: bool) -> None:
    need = Need(crd=MONITOR, when="monitor.enabled", default=default)
    assert edges(provider(), component("app", needs=(need,), values=values)) == ({"app": ["crds"]} if needed else {})


@pytest.mark.parametrize(
    ("kind", "crd"),
    [
        ("ServiceMonitor", MONITOR),
        ("Policy", "policies.monitoring.example.com"),
        ("Gateway", "gateways.monitoring.example.com"),
        ("Prometheus", "prometheuses.monitoring.example.com"),
        ("Class", "classes.monitoring.example.com"),
        ("Queue", "queues.monitoring.example.com"),
        ("Fish", "fish.monitoring.example.com"),
    ],
)
def test_the_kind_of_a_manifest_finds_its_crd(kind: str, crd: str) -> None:
    objects = [{"apiVersion": "monitoring.example.com/v1", "kind": kind, "metadata": {"name": "x"}}]
    app = component("app", post_manifests=(ManifestFile(name="x.yaml", objects=objects),))
    assert edges(provider(crd=crd), app) == {"app": ["crds"]}


def test_manifests_that_define_a_crd_provide_it() -> None:
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": MONITOR}}
    crds = component("crds", pre_manifests=(ManifestFile(name="crds.yaml", objects=[crd]),))
    assert edges(crds, component("app", needs=(Need(crd=MONITOR),))) == {"app": ["crds"]}


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"kind": "CustomResourceDefinition"},
        {"kind": "CustomResourceDefinition", "metadata": None},
        {"kind": "CustomResourceDefinition", "metadata": {"name": 3}},
        {"apiVersion": 3, "kind": ["x"]},
        {"apiVersion": "a.example.com/v1"},
        {"apiVersion": "v1", "kind": ""},
    ],
)
def test_odd_manifests_need_and_provide_nothing(entry: dict[str, Any]) -> None:
    app = component("app", pre_manifests=(ManifestFile(name="x.yaml", objects=[entry]),))
    assert edges(provider(), app) == {}


def test_whoever_defines_the_kind_itself_waits_for_nobody() -> None:
    assert edges(provider(), provider("app", needs=(Need(crd=MONITOR),))) == {}


def test_an_object_whose_guard_is_off_needs_nothing() -> None:
    guarded = {"$when": "extra", "apiVersion": "monitoring.example.com/v1", "kind": "ServiceMonitor"}
    file = ManifestFile(name="x.yaml", objects=[guarded])
    assert edges(provider(), component("app", post_manifests=(file,), values={"extra": False})) == {}
    assert edges(provider(), component("app", post_manifests=(file,), values={"extra": True})) == {"app": ["crds"]}


def test_a_volume_claim_waits_for_the_provisioner() -> None:
    storage = Storage(class_paths=("db.claim.storageClassName",))
    disk = component("disk", storage=Storage(provides=True))
    assert edges(disk, component("app", storage=storage)) == {}
    assert edges(disk, component("app", storage=storage, values={"db": {"claim": {"size": "1Gi"}}})) == {
        "app": ["disk"]
    }
    assert edges(disk, component("app", storage=Storage(claims=True))) == {"app": ["disk"]}


def test_an_unmet_need_names_component_kind_and_switch() -> None:
    need = Need(crd=MONITOR, when="monitor.enabled")
    (unmet,) = infer([component("app", needs=(need,))]).unmet
    for part in ("'app'", MONITOR, "set app:monitor.enabled to false"):
        assert part in str(unmet)


def test_what_the_service_or_the_api_server_brings_is_not_unmet() -> None:
    assert provided_outside("networkpolicies.networking.k8s.io", "")
    assert provided_outside("resourceclaims.resource.k8s.io", "kind")
    assert provided_outside("deployments.apps", "")
    assert provided_outside("servicemonitors.monitoring.coreos.com", "ocp")
    assert provided_outside("routes.route.openshift.io", "ocp")
    assert not provided_outside("servicemonitors.monitoring.coreos.com", "eks")
    assert not provided_outside("gateways.gateway.networking.k8s.io", "eks")
    assert not provided_outside("x.evilopenshift.io", "ocp")


def test_a_declared_dependency_with_unrecorded_crds_may_bring_them() -> None:
    app = component("app", needs=(Need(crd=MONITOR),), depends_on=("operator",))
    assert infer([component("operator"), app]).unmet == ()
    assert infer([provider("operator", crd="others.example.com"), app]).unmet != ()


def test_a_declared_edge_wins_over_an_inferred_one() -> None:
    app = component("app", needs=(Need(crd=MONITOR),))
    found = infer([provider(depends_on=("middle",)), component("middle", depends_on=("app",)), app])
    assert found.edges == {}
    (left_out,) = found.left_out
    assert left_out == LeftOut("app", "crds", left_out.reason, ("app", "crds", "middle", "app"))


def test_inferred_edges_that_contradict_each_other_are_an_error_with_the_path() -> None:
    one = provider("one", crd="ones.example.com", needs=(Need(crd="twos.example.com"),))
    two = provider("two", crd="twos.example.com", needs=(Need(crd="ones.example.com"),))
    with pytest.raises(BadInputError, match=r"one -> two -> one; .*dependsOn"):
        infer([one, two])
    decided = msgspec.structs.replace(one, depends_on=("two",))
    assert infer([decided, two]).edges == {}


def test_a_circle_of_declared_edges_is_reported_as_such() -> None:
    a, b = component("a", depends_on=("b",)), component("b", depends_on=("a",), needs=(Need(crd=MONITOR),))
    with pytest.raises(BadInputError, match=r"a -> b -> a; drop one"):
        infer([a, b, provider()])


def test_a_pool_waits_for_its_own_copy_only() -> None:
    copies = [provider(f"crds-{pool}", pool=pool) for pool in ("x", "y")]
    users = [component(f"app-{pool}", pool=pool, needs=(Need(crd=MONITOR),)) for pool in ("x", "y")]
    shared = component("all", needs=(Need(crd=MONITOR),))
    assert edges(*copies, *users, shared) == {
        "all": ["crds-x", "crds-y"],
        "app-x": ["crds-x"],
        "app-y": ["crds-y"],
    }


names = st.sampled_from("abcdef")


@st.composite
def components(draw: st.DrawFn) -> list[RecipeComponent]:
    """Up to six components with declared edges that form no circle, and CRDs that they provide and need."""
    found = []
    for at, name in enumerate("abcdef"[: draw(st.integers(1, 6))]):
        declared = draw(st.lists(st.sampled_from("abcdef"[:at]), unique=True)) if at else []
        found.append(
            component(
                name,
                depends_on=tuple(sorted(declared)),
                crds=Crds(
                    provides=tuple(f"{c}s.example.com" for c in draw(st.lists(names, max_size=2, unique=True)))
                ),
                needs=tuple(Need(crd=f"{c}s.example.com") for c in draw(st.lists(names, max_size=2, unique=True))),
                storage=Storage(provides=draw(st.booleans()), claims=draw(st.booleans())),
            )
        )
    return found


@given(components(), st.randoms(use_true_random=False))
def test_edges_never_close_a_circle_and_ignore_the_order_of_input(found: list[RecipeComponent], random: Any) -> None:
    def outcome(given_components: list[RecipeComponent]) -> Any:
        try:
            return infer(given_components)
        except BadInputError as error:
            return str(error)

    inference = outcome(found)
    turned = list(found)
    random.shuffle(turned)
    assert outcome(turned) == inference
    if isinstance(inference, str):
        assert "->" in inference
        return
    both = {c.name: [*c.depends_on, *inference.edges.get(c.name, {})] for c in found}
    place = {name: at for at, name in enumerate(order(both).sequence)}
    for name, needed in inference.edges.items():
        assert not set(needed) & {*next(c for c in found if c.name == name).depends_on, name}
        assert all(place[n] < place[name] for n in needed)
    for left_out in inference.left_out:
        assert left_out.path[0] == left_out.path[-1] == left_out.component


# ---- in resolution ----


def with_app(**fields: Any) -> Catalogue:
    """The catalogue with a component `app` in every recipe, after nothing."""
    catalogue = load()
    plain = {"name": "app", "source": SOURCE, "namespace": "x", "pin": {"source": "test", "date": "2026-09"}}
    app = msgspec.structs.replace(msgspec.convert(plain, Entry), **fields)
    base = catalogue.overlays["base"]
    changed: Overlay = msgspec.structs.replace(base, components=base.components | {"app": Patch()})
    return msgspec.structs.replace(
        catalogue,
        components=catalogue.components | {"app": app},
        overlays=catalogue.overlays | {"base": changed},
    )


def resolved(catalogue: Catalogue) -> Resolution:
    return resolve(parse_criteria({"accelerator": "h100"}), catalogue)


def test_explain_says_why_an_edge_is_there() -> None:
    crds = msgspec.structs.replace(
        load().components["cert-manager"], crds=Crds(provides=("certificates.cert-manager.io",))
    )
    catalogue = with_app(needs=(Need(crd="certificates.cert-manager.io", when="tls"),))
    catalogue = msgspec.structs.replace(catalogue, components=catalogue.components | {"cert-manager": crds})
    found = resolved(catalogue)
    assert found.recipe.component("app").depends_on == ("cert-manager",)  # type: ignore[union-attr]
    (entry,) = explain(found.provenance, ["app.dependsOn"])
    assert entry["path"] == "app.dependsOn.cert-manager"
    assert entry["value"] == "inferred"
    assert entry["settings"][-1]["source"] == "inference: tls makes objects of certificates.cert-manager.io"


def test_explain_says_which_edge_was_left_out() -> None:
    catalogue = with_app(crds=Crds(provides=("things.example.com",)))
    nfd = msgspec.structs.replace(catalogue.components["nfd"], needs=(Need(crd="things.example.com"),))
    base = catalogue.overlays["base"]
    base = msgspec.structs.replace(base, components=base.components | {"app": Patch(depends_on=("gpu-operator",))})
    catalogue = msgspec.structs.replace(
        catalogue,
        components=catalogue.components | {"nfd": nfd},
        overlays=catalogue.overlays | {"base": base},
    )
    found = resolved(catalogue)
    assert "app" not in found.recipe.component("nfd").depends_on  # type: ignore[union-attr]
    (entry,) = explain(found.provenance, ["nfd.dependsOn.app"])
    assert entry["value"] == "left out"
    assert "declared edges say nfd -> app -> gpu-operator -> nfd" in entry["settings"][-1]["source"]


def test_an_unmet_need_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"'app' needs the CRD things\.example\.com .*set app:x\.y to false"):
        resolved(with_app(needs=(Need(crd="things.example.com", when="x.y"),)))
    assert resolved(with_app(needs=(Need(crd="things.example.com", when="x.y", default=False),))).recipe


@pytest.mark.parametrize("name", NAMES)
def test_the_inferred_edges_of_a_recipe_are_what_inference_says(name: str) -> None:
    recipe = recipe_of(name)
    again = infer(recipe.components, recipe.criteria.get("service", ""))
    assert again.unmet == ()
    assert {c.name: c.inferred for c in recipe.components if c.inferred} == again.edges
