"""`muster policy show`: the policy in force on a node, a group of nodes, or one that comes with Muster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from muster.cli.cluster import cluster_options, read_all, with_cluster
from muster.cli.output import Format, emit, format_option
from muster.cli.policy_files import load_policies
from muster.errors import BadInputError
from muster.plain_text import aligned

if TYPE_CHECKING:
    from muster.kube.api import KubeApi
    from muster.operate.policy import EffectivePolicy
    from muster.resources.fault_policy import FaultPolicy


@click.command()
@click.argument("node", required=False)
@click.option(
    "--selector", default="", metavar="LABEL=VALUE,...", help="What is in force for nodes with these labels."
)
@click.option("--shipped", default="", help="A policy that comes with Muster, by name; no cluster is asked.")
@click.option("--file", "files", multiple=True, help="FaultPolicies of a file instead of those of the cluster.")
@format_option
@cluster_options
def show(
    node: str | None,
    selector: str,
    shipped: str,
    files: tuple[str, ...],
    output: Format,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """The policy in force on NODE: every rule with the policy that it comes from.

    Without a node: on nodes without labels, or with those of --selector.
    """
    from muster.operate.policy import effective_policy, load_shipped, problems

    if node and selector:
        raise BadInputError("NODE and --selector exclude each other; give one of them.")
    labels: Mapping[str, str] = _labels(selector)
    if shipped or files:
        if node:
            raise BadInputError("NODE needs the cluster; leave out --shipped and --file, or give --selector.")
        policies = [load_shipped(shipped)] if shipped else []
        policies += [one for _, one in load_policies(files)]
    else:
        policies, labels = with_cluster(kubeconfig, context, lambda api: _read(api, node, labels))
    left_out = [{"policy": p.metadata.name, "problems": list(problems(p))} for p in policies if problems(p)]
    emit(values(effective_policy(policies, labels), labels, left_out), output, _print)


async def _read(
    api: KubeApi, node: str | None, labels: Mapping[str, str]
) -> tuple[list[FaultPolicy], Mapping[str, str]]:
    from muster.kube.api import FAULT_POLICIES, NODES, NotFoundError
    from muster.operate.views import fault_policy

    policies = await read_all(api, FAULT_POLICIES, fault_policy.decode)
    if node:
        try:
            found = await api.get(NODES, node)
        except NotFoundError as error:
            raise BadInputError(f"The cluster has no node {node}; 'muster nodes' lists them.") from error
        labels = found["metadata"].get("labels") or {}
    return policies, labels


def _labels(selector: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in selector.split(","))):
        key, separator, value = part.partition("=")
        if not (separator and key):
            raise BadInputError(f"--selector has {part[:80]}, which is no LABEL=VALUE; write pool=training.")
        labels[key] = value
    return labels


def values(policy: EffectivePolicy, labels: Mapping[str, str], left_out: list[dict[str, Any]]) -> dict[str, Any]:
    """The effective policy as plain values, each entry with the policy that it comes from."""

    def plain(value: Any) -> Any:
        return msgspec.to_builtins(value, str_keys=True)

    def named(kind: str, entries: Any) -> list[dict[str, Any]]:
        return [{"from": policy.origins.get(f"{kind}/{e.name}", ""), **plain(e)} for e in entries]

    sections = {
        name: {"from": policy.origins.get(name, "(default)"), **_whole(getattr(policy, name))}
        for name in ("budget", "drain", "drift", "certification", "maintenance")
    }
    return {
        "labels": dict(sorted(labels.items())),
        "policies": list(dict.fromkeys(policy.sources)),
        "leftOut": left_out,
        "repairs": policy.repairs,
        "repairProvider": policy.repair_provider,
        "providers": dict(policy.providers),
        "rules": named("rule", policy.rules),
        "patterns": named("pattern", policy.patterns),
        "correlations": named("correlation", policy.correlations),
        **sections,
    }


def _whole(section: msgspec.Struct) -> dict[str, Any]:
    """A section with the values that nobody wrote, too."""
    return {
        field.encode_name: msgspec.to_builtins(getattr(section, field.name), str_keys=True)
        for field in msgspec.structs.fields(section)
    }


def _print(shown: dict[str, Any]) -> None:
    from muster.plain_text import plain

    click.echo(f"Policies, strongest first: {', '.join(plain(p, 60) for p in shown['policies'])}")
    for left_out in shown["leftOut"]:
        click.echo(f"Left out: {plain(left_out['policy'], 60)}: {plain(' '.join(left_out['problems']), 400)}")
    provider = shown["repairProvider"] or ", ".join(f"{k}: {v}" for k, v in shown["providers"].items())
    click.echo(f"Repairs: {'by ' + plain(provider, 120) if shown['repairs'] else 'off, a person is asked'}")
    click.echo("\nRules, the first that is true decides:")
    _table(
        ("RULE", "FROM", "DISPOSITION", "WHEN"),
        [(r["name"], r["from"], _disposition(r), plain(r["when"], 100)) for r in shown["rules"]],
    )
    click.echo("\nPatterns over history:")
    _table(
        ("PATTERN", "FROM", "ON", "MEANS"),
        [
            (p["name"], p["from"], "yes" if p.get("enabled", True) else "no", plain(p.get("description", ""), 100))
            for p in shown["patterns"]
        ],
    )
    click.echo("\nCorrelations over nodes:")
    _table(
        ("CORRELATION", "FROM", "ON", "MEANS"),
        [
            (c["name"], c["from"], "yes" if c.get("enabled", True) else "no", _correlation(c))
            for c in shown["correlations"]
        ],
    )
    click.echo("\nSections:")
    _table(
        ("SECTION", "FROM", "VALUES"),
        [
            (
                name,
                shown[name]["from"],
                plain(", ".join(f"{k}: {_shown(v)}" for k, v in shown[name].items() if k != "from"), 240),
            )
            for name in ("budget", "drain", "drift", "certification", "maintenance")
        ],
    )


def _shown(value: Any) -> str:
    """A value as a policy would have it."""
    if value is None or (not value and isinstance(value, Sequence | Mapping)):
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def _disposition(rule: dict[str, Any]) -> str:
    ladder = [step["rung"] for step in rule.get("ladder", [])]
    grace = f" after {rule['graceS']} s" if rule.get("graceS") else ""
    return f"{rule['disposition']}{' (' + ' > '.join(ladder) + ')' if ladder else ''}{grace}"


def _correlation(entry: dict[str, Any]) -> str:
    at_least, share = entry.get("atLeast", 3), entry.get("atLeastShare", "10%")
    over, within = entry.get("over", "domain"), entry.get("withinS", 600)
    most = entry.get("disposition", "condition")
    return f"{at_least} nodes and {share} of the {over} within {within} s: at most {most}"


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    if not rows:
        click.echo("  none")
        return
    for line in aligned([header, *rows]):
        click.echo(f"  {line}")
