"""A bundle read back: its recipe with the choices that were made, and the plan that follows from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from muster import yamlio
from muster.configure import lock, values
from muster.configure.bundles.build import DESCRIPTION, SUPPLIED, Deployer, verify
from muster.configure.bundles.choices import Objects, RecordedChoices, apply_choices, recall
from muster.configure.bundles.placement import PlacementChoice
from muster.configure.catalogue import Entry, Gate
from muster.configure.plan import CrdPolicy, Plan, Role, plan
from muster.configure.recipe import Recipe
from muster.errors import BadInputError
from muster.resources.base import API_VERSION

_MANIFEST = re.compile(r"[a-z0-9][a-z0-9-]{0,52}/[a-z0-9][a-z0-9.-]{0,99}\.yaml", re.ASCII)


class DescribedRepository(Entry, frozen=True, kw_only=True):
    url: str
    revision: str
    path: str


class DescribedRelease(Entry, frozen=True, kw_only=True):
    """One release, as a summary for people; what counts is the plan that follows from recipe and choices."""

    name: str
    component: str
    role: Role
    namespace: str
    level: int
    depends_on: tuple[str, ...] = ()
    gate: Gate
    crds: CrdPolicy
    timeout_s: int
    retries: int


class Description(Entry, frozen=True, kw_only=True):
    """Content of `bundle.yaml`."""

    api_version: Literal["muster.dev/v1alpha1"]
    kind: Literal["Bundle"]
    deployer: Deployer
    recipe: str
    """Digest of the recipe."""
    set: tuple[str, ...] = ()
    set_files: dict[str, dict[str, Any]] = {}
    placement: PlacementChoice = PlacementChoice()
    manifests: tuple[str, ...] = ()
    repository: DescribedRepository | None = None
    missing: tuple[str, ...] = ()
    releases: tuple[DescribedRelease, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenedBundle:
    """What can be installed from one place: a bundle, or a recipe without any choices (`deployer` is None)."""

    source: str
    locked: Recipe
    recipe: Recipe
    """With the choices applied."""
    plan: Plan
    deployer: Deployer | None = None


def open_bundle(folder: Path) -> OpenedBundle:
    """Verify the bundle at `folder` and read it.

    Raises BadInputError when it is no bundle or one that this version cannot read, NotSatisfiedError when a file was
    changed.
    """
    verify(folder)
    described = _description(folder / DESCRIPTION)
    locked = lock.read(folder / "recipe.yaml")
    if described.recipe != locked.digest:
        raise BadInputError(f"{folder} holds another recipe than its {DESCRIPTION} says; build the bundle again.")
    recorded = RecordedChoices(
        set=described.set,
        set_files=described.set_files,
        placement=described.placement,
        manifests=described.manifests,
    )
    supplied = {name: _supplied(folder, name) for name in described.manifests}
    recipe = apply_choices(locked, recall(recorded, supplied, locked)).recipe
    return OpenedBundle(str(folder), locked, recipe, plan(recipe), described.deployer)


def open_recipe(path: Path) -> OpenedBundle:
    """The recipe file at `path` as if a bundle had been built from it without any choices."""
    locked = lock.read(path)
    return OpenedBundle(str(path), locked, locked, plan(locked))


def open_either(path: Path) -> OpenedBundle:
    """A bundle when `path` is a folder, a recipe otherwise."""
    return open_bundle(path) if path.is_dir() else open_recipe(path)


def _supplied(folder: Path, name: str) -> Objects:
    if not _MANIFEST.fullmatch(name):
        raise BadInputError(f"{folder / DESCRIPTION} names the manifest {name[:60]!r}; build the bundle again.")
    path = folder / SUPPLIED / name
    try:
        documents = yamlio.loads_all(path.read_bytes(), str(path))
    except OSError as error:
        raise BadInputError(f"Cannot read {path}: {error.strerror or error}; build the bundle again.") from error
    values.check(documents, str(path))
    return [document for document in documents if isinstance(document, dict)]


def _description(path: Path) -> Description:
    content = yamlio.load(path)
    if not isinstance(content, dict) or content.get("kind") != "Bundle" or content.get("apiVersion") != API_VERSION:
        raise BadInputError(f"{path} does not describe a bundle of {API_VERSION}; build the bundle again.")
    values.check(content, str(path))
    try:
        return msgspec.convert(content, Description)
    except msgspec.ValidationError as error:
        raise BadInputError(
            f"{path} was written by another version of Muster ({error}); build the bundle again with this one."
        ) from error
