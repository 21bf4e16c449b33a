"""The README of a bundle: what is in it, what it needs, how to deploy it."""

from __future__ import annotations

from muster.configure.plan import Plan

_HELM = """\
    ./deploy.sh        installs the releases in order; run it again after a failure, it goes on where it stopped
    ./uninstall.sh     removes them in reverse order and keeps shared CRDs

Each release must be ready before the next one starts. `releases.tsv` is the table that both scripts read.
"""

_HELMFILE = """\
    ./sync.sh          checks the bundle, then runs `helmfile sync`; run it again after a failure

A release starts when all that it needs are ready; releases that do not need each other run side by side. Use `sync`,
not `apply`: on a fresh cluster there is nothing to compare with yet.
"""

_ARGOCD = """\
1. Put this folder where `app-of-apps.yaml` says: a Git repository, or an OCI registry with `muster bundle push`.
2. Merge the health rule into your Argo CD (3.2 or newer); without it sync waves do not wait for each other:

       kubectl patch configmap argocd-cm --namespace argocd --type merge --patch-file argocd-cm.yaml

3. Start: `kubectl apply -f app-of-apps.yaml`

Each release is an `Application`; a wave starts when the one before is healthy. A release that is not ready within its
timeout shows as Degraded, and the parent tries again with the newest revision. Applications that hold shared CRDs
have no finalizer, so removing them leaves the CRDs.
"""

_ARGOCD_HELM = """\
This folder is a Helm chart. It yields one parent Application, which renders the chart again from the repository.

1. Put this folder into a Git repository, or into an OCI registry with `muster bundle push`, and name that place with
   `--set repository.url=...,repository.revision=...` below unless the bundle was built with `--repo`.
2. Merge the health rule into your Argo CD (3.2 or newer); without it sync waves do not wait for each other:

       kubectl patch configmap argocd-cm --namespace argocd --type merge --patch-file argocd-cm.yaml

3. Start: `helm upgrade --install muster-bundle . --namespace argocd`

`values.yaml` says what can be chosen here: project, namespaces, destination, and values of each release.
"""

_FLUX = """\
1. Put this folder where `flux-bundle.yaml` says: a Git repository, or an OCI registry with `muster bundle push`.
2. Start: `kubectl apply -f flux-bundle.yaml`
3. Watch: `flux get helmreleases --namespace flux-system --watch`, or `kubectl get helmreleases -n flux-system -w`

Each release is a `HelmRelease` that waits for exactly those that it depends on. A failed one is tried again.
"""
_DEPLOY = {"helm": _HELM, "helmfile": _HELMFILE, "argocd": _ARGOCD, "argocd-helm": _ARGOCD_HELM, "flux": _FLUX}

_MANAGERS = {"helm": "muster-bundle", "helmfile": "muster-bundle", "flux": "kustomize-controller"}
"""Who applies the file of namespaces later on; the others let the deployer create each."""


def _namespaces(planned: Plan, deployer: str) -> str:
    """How the namespaces of the secrets come to be before anything is deployed."""
    manager = _MANAGERS.get(deployer)
    if manager is not None:
        return f"Their namespaces: `kubectl apply --server-side --field-manager={manager} -f namespaces.yaml`"
    names = " ".join(sorted({f"`kubectl create namespace {secret.namespace}`" for secret in planned.secrets}))
    return f"Their namespaces: {names}"


def readme(planned: Plan, deployer: str, repository_unset: bool) -> str:
    """Markdown. Names only; values stay in the files that hold them. Raises KeyError for an unknown deployer."""
    lines = [
        "# Bundle",
        "",
        f"Recipe `{planned.recipe_digest}`, rendered for {deployer}. `muster bundle verify` checks that nothing",
        "was changed. `UNINSTALL.md` says how to remove it all again; `muster bundle diff OLD NEW` says what an",
        "upgrade does before you deploy it.",
        "",
    ]
    if planned.secrets:
        lines += ["## Secrets to create first", "", _namespaces(planned, deployer), ""]
        for secret in planned.secrets:
            keys = ", ".join(f"`{key}`" for key in secret.keys)
            lines.append(f"- `{secret.namespace}/{secret.name}` with the keys {keys}")
        lines.append("")
    lines += ["## Deploy", "", _DEPLOY[deployer]]
    if deployer in ("argocd", "flux") and repository_unset:
        lines += [
            "**The repository is not set.** Build the bundle again with `--repo URL`; the address in it now is a",
            "placeholder that never resolves.",
            "",
        ]
    if planned.missing:
        lines += [
            "## Manifests to supply",
            "",
            "These are known by name only. Until each is supplied with `--manifest NAME=FILE`, its release refuses",
            "to render; `--set COMPONENT:enabled=false` leaves a component out instead.",
            "",
            *(f"- `{name}`" for name in planned.missing),
            "",
        ]
    lines += ["## Releases", "", "| level | release | namespace | chart | version |", "|---|---|---|---|---|"]
    lines += [
        f"| {r.level} | {r.name} | {r.namespace} | {r.chart or 'in this bundle'} | {r.version or '-'} |"
        for r in planned.releases
    ]
    return "\n".join(lines) + "\n"
