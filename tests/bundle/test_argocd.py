"""Argo CD: kinds of repositories and charts, what makes waves wait, names, what removal leaves."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from muster import yamlio
from muster.configure.bundles import build as bundles
from muster.configure.bundles.build import Deployer
from muster.configure.plan import CrdPolicy, Plan, Release, plan
from muster.configure.recipe import ManifestFile
from muster.configure.render import argocd
from muster.configure.render.repository import UNSET_REPOSITORY, Repository, check_repository
from muster.errors import BadInputError
from tests.bundle.cases import GIT, OCI, SSH, bundle_of
from tests.configure.cases import NAMES, recipe_of

ARGO = (Deployer.ARGOCD, Deployer.ARGOCD_HELM)
CHARTS = (
    "https://charts.example/stable",
    "oci://registry.example/charts",
    "oci://registry.example:5000/charts/",
    "oci://10.0.0.7:5000/charts",
)


def applications(files: dict[str, str]) -> list[Any]:
    return [yamlio.loads(files[n], n) for n in sorted(files) if n.startswith("applications/")]


def kind_of(source: dict[str, Any]) -> str:
    """How Argo CD 3.5 reads a source: by scheme, then by the field `chart`, else as Git."""
    if source["repoURL"].startswith("oci://"):
        return "artifact"
    if "chart" not in source:
        return "git"
    # Go's parser takes what stands before a colon as a scheme, unless it starts with a digit: that is an error.
    address = source["repoURL"]
    host = address.split("/", 1)[0]
    if "://" in address:
        assert urlsplit(address).netloc
        return "helm-http"
    assert not (":" in host and host[0].isdigit()), "Argo CD would ask this registry for an index.yaml"
    return "helm-oci"


@pytest.mark.parametrize("repository", [GIT, SSH, OCI])
@pytest.mark.parametrize("chart", CHARTS)
def test_matrix_of_repositories_and_charts(repository: Repository, chart: str) -> None:
    check_repository(repository)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    main = Release(
        name="a", component="a", role="main", namespace="n", repository=chart, chart="c", version="v1.2.3+b1"
    )
    local = Release(
        name="b",
        component="b",
        role="main",
        namespace="n",
        manifests=(ManifestFile(name="x.yaml", objects=[config]),),
    )
    planned = Plan(releases=(main, local), namespaces={"n": {}}, recipe_digest="sha256:0")
    files = argocd.render(planned, repository)
    remote, inside = (document["spec"]["source"] for document in applications(files))
    parent = yamlio.loads(files["app-of-apps.yaml"], "parent")["spec"]["source"]
    assert kind_of(inside) == kind_of(parent) == ("artifact" if repository is OCI else "git")
    for source in (inside, parent):
        assert (source["repoURL"], source["targetRevision"]) == (repository.url, repository.revision)
    prefix = "gpu/bundle/" if repository is GIT else ""
    assert parent["path"] == f"{prefix}applications"
    assert f"{inside['path'].removeprefix(prefix)}/Chart.yaml" in files
    if chart.startswith("https://"):
        assert (kind_of(remote), remote["repoURL"], remote["chart"]) == ("helm-http", chart, "c")
        assert remote["targetRevision"] == "v1.2.3+b1"
    elif "10.0.0.7" in chart:
        assert (kind_of(remote), remote["repoURL"], remote["path"]) == ("artifact", f"{chart}/c", ".")
        assert remote["targetRevision"] == "v1.2.3_b1"
    else:
        bare = chart.removeprefix("oci://").rstrip("/")
        assert (kind_of(remote), remote["repoURL"], remote["chart"]) == ("helm-oci", bare, "c")
        assert remote["targetRevision"] == "v1.2.3+b1"


@pytest.mark.parametrize("name", NAMES)
def test_the_parent_never_gives_up_and_sees_corrections(name: str) -> None:
    """A wave that waits would otherwise hold the revision that it began with, and a fix would never be seen."""
    _, files = bundle_of(name, Deployer.ARGOCD)
    parent = yamlio.loads(files["app-of-apps.yaml"], "parent")
    assert parent["spec"]["syncPolicy"]["retry"]["limit"] < 0
    assert parent["spec"]["syncPolicy"]["retry"]["refresh"] is True
    for document in applications(files):
        assert document["spec"]["syncPolicy"]["retry"]["limit"] > 0
        assert {"CreateNamespace=true", "ServerSideApply=true"} <= set(document["spec"]["syncPolicy"]["syncOptions"])
        assert "valuesObject" not in document["spec"]["source"]["helm"], "a merge patch drops nulls from objects"


@pytest.mark.parametrize("deployer", ARGO)
def test_the_rule_is_there(deployer: Deployer) -> None:
    _, files = bundle_of("h100-any", deployer)
    rule = yamlio.loads(files["argocd-cm.yaml"], "rule")
    assert (rule["kind"], rule["metadata"]["name"]) == ("ConfigMap", "argocd-cm")
    assert rule["metadata"].get("namespace") == ("argocd" if deployer is Deployer.ARGOCD else None)
    assert list(rule["data"]) == ["resource.customizations.health.argoproj.io_Application"]


@pytest.mark.parametrize("deployer", ARGO)
@pytest.mark.parametrize("name", ["h100-eks-ubuntu-training-slurm", "h100-eks-ubuntu-inference-dynamo"])
def test_shared_crds_have_nothing_that_removes_them(deployer: Deployer, name: str) -> None:
    planned, files = bundle_of(name, deployer)
    documents = {d["metadata"]["name"]: d for d in applications(files)}
    kept = [r.name for r in planned.releases if r.crds is CrdPolicy.KEEP]
    assert kept
    for release, document in documents.items():
        assert ("finalizers" in document["metadata"]) is (release not in kept)
        assert document["spec"]["syncPolicy"]["automated"]["prune"] is (release not in kept)


@pytest.mark.parametrize("deployer", ARGO)
def test_namespaces_get_their_labels(deployer: Deployer) -> None:
    recipe = recipe_of("h100-any")
    labels = {"pod-security.kubernetes.io/enforce": "privileged", "a.example/yes": "123"}
    first, *others = recipe.components
    changed = msgspec.structs.replace(
        recipe, components=(msgspec.structs.replace(first, namespace="labelled", namespace_labels=labels), *others)
    )
    _, files = bundles.build(recipe, changed, deployer)
    found = {}
    for document in applications(files):
        policy = document["spec"]["syncPolicy"]
        assert "CreateNamespace=true" in policy["syncOptions"]
        found[document["spec"]["destination"]["namespace"]] = policy.get("managedNamespaceMetadata")
    assert found.pop("labelled") == {"labels": dict(sorted(labels.items()))}
    assert not any(found.values())


def renamed(name: str) -> Any:
    recipe = recipe_of("h100-any")
    first, *others = recipe.components
    return recipe, msgspec.structs.replace(
        recipe,
        components=(
            msgspec.structs.replace(first, name=name),
            *(
                msgspec.structs.replace(c, depends_on=tuple(n for n in c.depends_on if n != first.name))
                for c in others
            ),
        ),
    )


@pytest.mark.parametrize("deployer", ARGO)
def test_a_release_cannot_be_its_own_parent(deployer: Deployer) -> None:
    recipe, changed = renamed(argocd.PARENT)
    with pytest.raises(BadInputError, match="muster-bundle"):
        bundles.build(recipe, changed, deployer)


def test_content_decides_the_path_of_a_chart() -> None:
    """Else an Application could count as compared with its present source at a revision without the new content."""

    def path(text: str) -> str:
        objects = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": text}}]
        release = Release(
            name="b",
            component="b",
            role="main",
            namespace="n",
            manifests=(ManifestFile(name="x.yaml", objects=objects),),
        )
        planned = Plan(releases=(release,), namespaces={"n": {}}, recipe_digest="sha256:0")
        return str(applications(argocd.render(planned, GIT))[0]["spec"]["source"]["path"])

    assert path("1") == path("1")
    assert path("1") != path("2")


def test_a_gate_runs_again_after_an_upgrade() -> None:
    planned = plan(recipe_of("h100-eks-ubuntu-training-kubeflow"))
    gated = [r for r in planned.releases if r.gate == "deployments-available"]
    assert gated

    def jobs(planned: Plan) -> list[str]:
        files = argocd.render(planned, GIT)
        return [
            o["metadata"]["name"]
            for name in sorted(files)
            if "-gate-" in name and "/manifests/" in name
            for o in yamlio.loads_all(files[name], name)
            if o["kind"] == "Job"
        ]

    upgraded = msgspec.structs.replace(
        planned,
        releases=tuple(msgspec.structs.replace(r, version="v9.9.9") if r in gated else r for r in planned.releases),
    )
    assert len(jobs(planned)) == len(gated)
    assert all(len(name) <= 63 for name in jobs(planned))
    assert jobs(planned) == jobs(planned) != jobs(upgraded)


@pytest.mark.parametrize(
    "url",
    [
        "", "x", "file:///etc", "https://", "https://a b/c", "-oProxyCommand=x", "oci://", "oci://registry.example",
        "oci://registry.example/UPPER", "oci://registry.example/a:tag", "oci://registry.example/a/../b", "git@:x",
    ],
)  # fmt: skip
def test_bad_addresses(url: str) -> None:
    with pytest.raises(BadInputError, match="--repo"):
        check_repository(Repository(url, "v1"))


@pytest.mark.parametrize("url", ["https://user:hunter2@git.example/x.git", "https://:hunter2@git.example/x.git"])
def test_a_password_in_an_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(BadInputError, match="password") as caught:
        check_repository(Repository(url))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("path", ["../x", "/etc", "a/../b", "-x", "a b", ""])
def test_bad_folders(path: str) -> None:
    with pytest.raises(BadInputError, match="--repo-path"):
        check_repository(Repository(UNSET_REPOSITORY, path=path))


@pytest.mark.parametrize(
    ("url", "revision"),
    [
        ("https://git.example/x.git", "a b"),
        ("https://git.example/x.git", "sha256:" + "0" * 64),
        ("oci://registry.example/x", "HEAD"),
        ("oci://registry.example/x", "sha256:0"),
        ("oci://registry.example/x", "a/b"),
    ],
)
def test_bad_revisions(url: str, revision: str) -> None:
    with pytest.raises(BadInputError, match="--revision"):
        check_repository(Repository(url, revision))


@pytest.mark.parametrize(
    "repository",
    [
        Repository(),
        GIT,
        SSH,
        OCI,
        Repository("ssh://git@git.example:2222/x.git"),
        Repository("oci://127.0.0.1:5000/a/b-c", "sha256:" + "0" * 64),
    ],
)
def test_good_repositories(repository: Repository) -> None:
    check_repository(repository)
    assert repository.is_oci is repository.url.startswith("oci://")
