"""The recipe file is the lock: canonical YAML with a digest over its content, verified whenever it is read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from muster import yamlio
from muster.configure import values
from muster.configure.recipe import KIND, Recipe, check_recipe, content_of
from muster.errors import BadInputError
from muster.resources.base import API_VERSION

_HEADER = "# Locked by 'muster recipe'. Change the criteria and resolve again rather than editing this file.\n"


def write(recipe: Recipe) -> str:
    """The lock file of `recipe`. Same recipe, same bytes."""
    return _HEADER + yamlio.dumps(_content(recipe))


def write_json(recipe: Recipe) -> str:
    """The same content as JSON, which reads back as the lock file does."""
    return msgspec.json.format(msgspec.json.encode(_content(recipe))).decode() + "\n"


def _content(recipe: Recipe) -> dict[str, Any]:
    """Plain values of the recipe with its digest, where the field stands."""
    content: dict[str, Any] = content_of(msgspec.structs.replace(recipe, digest="-"))
    content["digest"] = digest_of(content)
    return content


def digest_of(content: dict[str, Any]) -> str:
    """`sha256:<hex>` over the content (plain values) without its `digest`; comments and layout do not count."""
    bare = {key: value for key, value in content.items() if key != "digest"}
    return f"sha256:{hashlib.sha256(msgspec.json.encode(bare, order='sorted')).hexdigest()}"


def locked(recipe: Recipe) -> Recipe:
    """`recipe` with its digest filled in."""
    return msgspec.structs.replace(recipe, digest=digest_of(content_of(recipe)))


def read(path: Path) -> Recipe:
    """Read and verify a lock file. Raises BadInputError when it is missing, malformed or was edited."""
    try:
        # Bounded here too: a device or a pipe has no size to look at beforehand.
        with path.open("rb") as file:
            content = file.read(yamlio.MAX_BYTES + 1)
    except OSError as error:
        raise BadInputError(f"Cannot read {str(path)[:120]}: {error.strerror or error}.") from error
    return parse(yamlio.loads(content, str(path)), str(path))


def parse(content: Any, source: str) -> Recipe:
    """Verify `content` (parsed YAML) and turn it into a recipe. Raises BadInputError."""
    if not isinstance(content, dict) or content.get("kind") != KIND or content.get("apiVersion") != API_VERSION:
        raise BadInputError(f"{source} is not a recipe of {API_VERSION}; make one with 'muster recipe -o FILE'.")
    values.check(content, source)
    if content.get("digest") != digest_of(content):
        raise BadInputError(
            f"{source} was changed after it was locked (its digest does not match); resolve it again with 'muster "
            "recipe' and put your changes into flags such as --set."
        )
    try:
        recipe = msgspec.convert(content, Recipe)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{source} is not a recipe that this version of Muster understands: {error}.") from error
    check_recipe(recipe, source)
    return recipe
