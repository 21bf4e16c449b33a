"""Bundles that several test modules build."""

from __future__ import annotations

from functools import cache

from muster.configure.bundles import build as bundles
from muster.configure.bundles.build import FETCHING, Deployer
from muster.configure.bundles.overrides import Override, with_overrides
from muster.configure.plan import Plan
from muster.configure.recipe import Recipe
from muster.configure.render.repository import Repository
from tests.configure.cases import recipe_of

GIT = Repository("https://git.example/clusters/prod.git", "v1", "gpu/bundle")
SSH = Repository("git@git.example:clusters/prod.git", "main")
OCI = Repository("oci://registry.example:5000/clusters/prod", "2026-09-01")


def built(
    recipe: Recipe, deployer: Deployer, overrides: tuple[Override, ...] = (), repository: Repository = GIT
) -> tuple[Plan, dict[str, str]]:
    """The plan and the files of a bundle."""
    return bundles.build(
        recipe,
        with_overrides(recipe, overrides) if overrides else recipe,
        deployer,
        overrides,
        repository if deployer in FETCHING else None,
    )


@cache
def bundle_of(name: str, deployer: Deployer) -> tuple[Plan, dict[str, str]]:
    """The bundle of a reference leaf, built once; not to be changed."""
    return built(recipe_of(name), deployer)
