"""What a user states about the cluster: options of `muster recipe`, and the recipe that they resolve to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from muster.configure.criteria import VOCABULARY, Dimension
from muster.errors import BadInputError

if TYPE_CHECKING:
    from muster.configure.catalogue import Catalogue
    from muster.configure.resolve import Resolution

F = TypeVar("F", bound=Callable[..., Any])
MEANINGS = {
    "service": "Who runs Kubernetes",
    "accelerator": "GPU model",
    "intent": "What the cluster is for",
    "os": "Operating system of the GPU nodes",
    "platform": "What runs the workloads",
}
DIMENSIONS = tuple(MEANINGS)


class Stated(msgspec.Struct, frozen=True):
    """The options as they were given."""

    criteria: Mapping[str, str | None]
    profiles: Sequence[str] = ()
    nodes: int | None = None
    pools: Sequence[str] = ()
    selectors: Sequence[str] = ()
    settle: Sequence[str] = ()

    def is_empty(self) -> bool:
        given = (*self.criteria.values(), *self.profiles, *self.pools, *self.selectors, *self.settle)
        return self.nodes is None and not any(given)


def stated_options(command: F) -> F:
    """Adds an option per dimension, `--profile`, `--nodes`, `--pool`, `--pool-selector` and `--settle`."""
    for option in (
        click.option(
            "--settle",
            multiple=True,
            metavar="COMPONENT:PATH=VALUE",
            help="Decide what a shared component gets where pools differ; =@POOL takes what that pool has.",
        ),
        click.option(
            "--pool-selector",
            "selectors",
            multiple=True,
            metavar="NAME:LABEL=VALUE,...",
            help="Labels of the nodes of a pool; muster.dev/pool=NAME if not given.",
        ),
        click.option(
            "--pool",
            "pools",
            multiple=True,
            metavar="NAME:DIMENSION=VALUE,...",
            help="A pool of GPU nodes that differs from others, for example train:accelerator=h100,os=ubuntu.",
        ),
        click.option(
            "--nodes", type=click.IntRange(1, 1_000_000), metavar="N", help="Number of GPU nodes, for sizing."
        ),
        click.option(
            "--profile",
            "profiles",
            multiple=True,
            metavar="NAME=VALUE",
            help="Choose a value of a profile, for example gpuStack=operator-managed on AKS.",
        ),
        *(
            click.option(f"--{d}", metavar="NAME", help=f"{meaning}: {', '.join(VOCABULARY[Dimension(d)])}.")
            for d, meaning in reversed(MEANINGS.items())
        ),
    ):
        command = option(command)
    return command


def catalogue_option(command: F) -> F:
    """Adds `--catalogue`; the command receives `catalogue: tuple[str, ...]`."""
    option = click.option(
        "--catalogue",
        multiple=True,
        metavar="REF",
        help="Layer on the built-in catalogue: a folder or oci://HOST/REPO@sha256:DIGEST. Repeat it, lowest first.",
    )
    return option(command)


def open_catalogue(refs: Sequence[str]) -> Catalogue:
    """The built-in catalogue with the layers at `refs` on top."""
    if not refs:
        from muster.configure.catalogue import load

        return load()
    from muster.configure.layers import opening as layers

    return layers.open_catalogue(refs)


def parse_profiles(texts: Sequence[str]) -> dict[str, str]:
    """Read `name=value` texts. Raises BadInputError."""
    profiles: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value or name in profiles:
            raise BadInputError(f"--profile {text[:80]!r} is malformed or given twice; write it once as name=value.")
        profiles[name] = value
    return profiles


def resolve_stated(stated: Stated, catalogue: Catalogue) -> Resolution:
    """Resolve what the options state."""
    from muster.configure.criteria import parse_criteria
    from muster.configure.resolve import resolve

    profiles = parse_profiles(stated.profiles)
    if not stated.pools:
        if stated.settle or stated.selectors:
            raise BadInputError("--settle and --pool-selector belong to pools; add --pool name:dimension=value.")
        return resolve(parse_criteria(stated.criteria, catalogue), catalogue, profiles, stated.nodes)
    from muster.configure.pools import parse_pools, resolve_pools

    pools = parse_pools(stated.pools, stated.selectors, stated.criteria, catalogue)
    any_stated = any((value or "any").strip().lower() != "any" for value in stated.criteria.values())
    shared = parse_criteria(stated.criteria, catalogue) if any_stated else {}
    return resolve_pools(shared, pools, catalogue, profiles, stated.nodes, stated.settle)


def resolve_again(path: Path, catalogue: Catalogue) -> Resolution:
    """Resolve the criteria, pools and profiles of a locked recipe. Raises BadInputError for another catalogue."""
    from muster.configure import lock
    from muster.configure.criteria import parse_criteria
    from muster.configure.resolve import resolve

    locked = lock.read(path)
    if locked.catalogue != catalogue.digest:
        missing = [layer for layer in locked.layers if layer not in catalogue.layers]
        extra = [layer for layer in catalogue.layers if layer not in locked.layers]
        if missing:
            layer = missing[0]
            raise BadInputError(
                f"{path} was resolved with the layer {layer.name} ({layer.digest}); give that with --catalogue."
            )
        if extra:
            raise BadInputError(
                f"{path} was resolved without the layer {extra[0].name}; leave it out, or resolve again."
            )
        raise BadInputError(f"{path} comes from another catalogue than this version of Muster has; resolve it again.")
    if locked.pools:
        from muster.configure.pools import choices_of, resolve_pools, settle_texts

        shared = {Dimension(d): value for d, value in locked.criteria.items()}
        return resolve_pools(shared, choices_of(locked), catalogue, nodes=locked.nodes, settle=settle_texts(locked))
    return resolve(parse_criteria(dict(locked.criteria), catalogue), catalogue, locked.profiles, locked.nodes)
