"""What a reader of rendered files finds: one release as one deployer will treat it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from muster import yamlio
from muster.configure.catalogue import Gate
from muster.configure.plan import CrdPolicy


@dataclass(frozen=True, kw_only=True)
class Found:
    """One release, read back from the files that the deployer itself reads."""

    name: str
    """Name of the Helm release (`helm list` shows it), whatever the deployer calls its own object."""
    namespace: str
    chart: str
    """Name of the chart; empty for a chart inside the bundle."""
    repository: str
    """With `oci://` where it is one, without a slash at the end; empty for a chart inside the bundle."""
    version: str
    """Version of the chart; empty for a chart in the bundle."""
    values: Any
    after: tuple[str, ...]
    """Releases (by `name`) that this deployer surely finishes, gate included, before it starts this one.

    From the deployer's own rule alone: all earlier rows of a serial script, all lower sync waves, `dependsOn`,
    `needs`. The suite works out the closure.
    """
    timeout_s: int | None
    """None: the deployer knows no timeout for one release."""
    retries: int | None
    """None: the deployer tries again without end."""
    crds: CrdPolicy
    """What this deployer will do with the CRDs, judged by its own fields."""
    gate: Gate
    """What this deployer really waits for."""
    manifests: tuple[Any, ...] = ()
    """Objects of a chart inside the bundle, as it renders them."""


def closure(found: Iterable[Found]) -> dict[str, frozenset[str]]:
    """Release -> every release that is finished before it starts. Fails on a cycle and on an unknown name."""
    by_name = {f.name: f for f in found}
    done: dict[str, frozenset[str]] = {}

    def walk(name: str, path: tuple[str, ...]) -> frozenset[str]:
        assert name not in path, f"cycle: {' -> '.join((*path, name))}"
        assert name in by_name, f"{path[-1] if path else ''} waits for {name}, which is not there"
        if name not in done:
            direct = by_name[name].after
            done[name] = frozenset(direct).union(*(walk(needed, (*path, name)) for needed in direct))
        return done[name]

    for name in sorted(by_name):
        walk(name, ())
    return done


def manifests_of(files: Mapping[str, str], folder: str) -> tuple[Any, ...]:
    """The objects that lie in a chart inside the bundle, in the order of their files."""
    names = sorted(name for name in files if name.startswith(f"{folder}/manifests/"))
    # A file of which nothing applies here is empty, which YAML reads as one null.
    return tuple(d for name in names for d in yamlio.loads_all(files[name], name) if d is not None)
