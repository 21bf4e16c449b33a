"""Custom resources that a comparison with a Baseline may read: those of the catalogue's components.

`python -m muster.controller.baseline_rights deploy/chart/files/baseline-kinds.yaml` writes them for the chart.
"""

from __future__ import annotations

import sys
from pathlib import Path

from muster import yamlio
from muster.configure.catalogue import Catalogue, load

_HEADER = "# Made by python -m muster.controller.baseline_rights; a test fails when it is stale.\n"


def kinds(catalogue: Catalogue) -> dict[str, list[str]]:
    """API group -> plurals: the CRDs that components provide, and what their health rules look at."""
    names = {name for component in catalogue.components.values() for name in component.crds.provides}
    for component in catalogue.components.values():
        for rule in component.health:
            group = rule.api_version.rpartition("/")[0]
            names.add(f"{rule.plural}.{group}" if group else rule.plural)
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        plural, _, group = name.partition(".")
        found.setdefault(group, []).append(plural)
    return dict(sorted(found.items()))


def page(catalogue: Catalogue) -> str:
    """The chart's file."""
    return _HEADER + yamlio.dumps(kinds(catalogue))


def main(arguments: list[str]) -> None:
    Path(arguments[0]).write_text(page(load()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
