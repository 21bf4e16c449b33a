"""The README of a bundle: what is in it, what it needs, how to deploy it."""

from __future__ import annotations

from muster.configure.plan import Plan

_HELM = """\
    ./deploy.sh        installs the releases in order; run it again after a failure, it goes on where it stopped
    ./uninstall.sh     removes them in reverse order and keeps shared CRDs

Each release must be ready before the next one starts. `releases.tsv` is the table that both scripts read.
"""

_ARGOCD = """\
1. Commit this folder to the Git repository that `app-of-apps.yaml` names.
2. Merge the health rule into your Argo CD; without it sync waves do not wait for each other:

       kubectl patch configmap argocd-cm --namespace argocd --type merge --patch-file argocd-cm.yaml

3. Start: `kubectl apply -f app-of-apps.yaml`

Each release is an `Application` whose sync wave is its level; a wave starts when the one before is healthy. A failed
sync is tried again with growing pauses. Argo CD has no timeout per Application: one that does not become healthy
holds its wave until it does. Applications that hold shared CRDs have no finalizer, so removing them leaves the CRDs.
"""


def readme(planned: Plan, deployer: str, repository_unset: bool) -> str:
    """Markdown. Names only; values stay in the files that hold them."""
    lines = [
        "# Bundle",
        "",
        f"Recipe `{planned.recipe_digest}`, rendered for {deployer}. `muster bundle verify` checks that nothing",
        "was changed.",
        "",
        "## Deploy",
        "",
        _HELM if deployer == "helm" else _ARGOCD,
    ]
    if deployer == "argocd" and repository_unset:
        lines += [
            "**The Git repository is not set.** Build the bundle again with `--repo URL`; the address in it now is a",
            "placeholder that never resolves.",
            "",
        ]
    if planned.secrets:
        lines += ["## Secrets to create first", ""]
        for secret in planned.secrets:
            keys = ", ".join(f"`{key}`" for key in secret.keys)
            lines.append(f"- `{secret.namespace}/{secret.name}` with the keys {keys}")
        lines.append("")
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
