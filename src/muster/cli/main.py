"""Entry point: the table of verbs. Help and version are answered here, without importing anything heavy."""

from __future__ import annotations

import sys

from muster import __version__

# Verb -> (module:attribute, one line of help). The help stands here so that `muster --help` imports no verb.
VERBS: dict[str, tuple[str, str]] = {
    "demo": ("muster.cli.demo:demo", "Show the whole lifecycle on an embedded, simulated cluster."),
    "sim": ("muster.cli.sim:sim", "Keep a simulated cluster running for kubectl."),
    "read": ("muster.cli.read:read", "Say what a log means: faults, evidence, what to do."),
    "snapshot": ("muster.cli.snapshot:snapshot", "Record what a machine or the cluster is; compare two records."),
    "recipe": ("muster.cli.recipe:recipe", "Resolve, list, explain and check recipes."),
    "bundle": ("muster.cli.bundle:bundle", "Render a recipe for a deployer; compare, share, verify bundles."),
    "assert": ("muster.cli.assert_:assert_", "Check the live cluster against a recipe."),
    "drift": ("muster.cli.drift:drift", "Say how the live cluster differs from a recipe."),
    "catalogue": ("muster.cli.catalogue:catalogue", "Check a catalogue layer, or push it to a registry."),
    "baseline": ("muster.cli.baseline:baseline", "Print the object that keeps a cluster on its recipe."),
    "certify": ("muster.cli.certify:certify", "Prove that nodes and links do the work; name what does not."),
    "certificate": ("muster.cli.certificate:certificate", "Export a node's certificate and verify one offline."),
    "nodes": ("muster.cli.nodes:nodes", "The fleet, one line a node."),
    "node": ("muster.cli.nodes:node", "Explain one node; hold, release, approve, retry, defer, retire it."),
    "maintenance": (
        "muster.cli.maintenance:maintenance",
        "Planned work on nodes; the record of all work on machines.",
    ),
    "policy": ("muster.cli.policy:policy", "Show, check, test and backtest policies."),
    "goodput": ("muster.cli.goodput:goodput", "Where the node-hours went, by cause."),
    "controller": ("muster.cli.controller:controller", "Run the controller."),
    "agent": ("muster.cli.agent:agent", "Run the node agent."),
}


def help_text() -> str:
    """What `muster --help` prints."""
    width = max(map(len, VERBS))
    lines = [
        "Usage: muster [--debug] VERB [ARGS]...",
        "",
        "Keeps GPU Kubernetes clusters fit for work: configure, certify, operate, recertify.",
        "",
        "Verbs:",
        *(f"  {name:<{width}}  {text}" for name, (_, text) in VERBS.items()),
        "",
        "Options:",
        "  --debug     Show the traceback of an error.",
        "  --version   Show the version and exit.",
        "  -h, --help  Show this message; 'muster VERB --help' explains one verb.",
        "",
        "Exit codes: 0 fine, 1 internal error, 2 bad input, 3 not satisfied, 4 unreachable, 5 timeout.",
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit the process with the code of the result."""
    args = sys.argv[1:] if argv is None else argv
    if not args or args[0] in ("-h", "--help", "help"):
        print(help_text())
        sys.exit(0)
    if args[0] == "--version":
        print(f"muster {__version__}")
        sys.exit(0)
    try:
        from muster.cli.group import run

        code = int(run(args))
    except KeyboardInterrupt:  # while a verb was still being imported
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
