"""Lints over merged values: literal secrets and image tags that float."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from muster.configure.values import leaves, path_text
from muster.errors import BadInputError

_SECRET_KEY = re.compile(
    r"(password|passwd|passphrase|token|api_?key|private_?key|access_?key|secret_?key|client_?secret|credentials?)",
    re.I,
)
_REFERENCE_KEY = re.compile(r"(existing|name$|ref$|path$|file$|mount|ttl|enabled$|keyref|selector)", re.I)
_KEY_OF_SECRET = re.compile(r"(password|username|user|token)_?key", re.I)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_FLOATING_IMAGE = re.compile(r"[^\s:]+(/[^\s:]+)*:(latest|main|master|nightly)", re.I)
_FLOATING_TAGS = frozenset({"latest", "main", "master", "nightly"})


def lint_values(component: str, values: Mapping[str, Any], source: str) -> None:
    """Raise BadInputError for the first literal secret or floating image tag in `values`."""
    for path, value in leaves(values):
        if not isinstance(value, str) or not value:
            continue
        key = next((part for part in reversed(path) if not part.startswith("[")), "")
        where = f"{component}:{path_text(path)} ({source})"
        if _PRIVATE_KEY.search(value) or _is_secret(key):
            raise BadInputError(
                f"{where} is a secret written out; put it into a Secret and name that Secret in the values."
            )
        if (key.lower() in ("tag", "imagetag") and value.lower() in _FLOATING_TAGS) or (
            key.lower() == "image" and _FLOATING_IMAGE.fullmatch(value)
        ):
            raise BadInputError(f"{where} is the image tag {value[:60]!r}, which moves; pin an exact tag or digest.")


def _is_secret(key: str) -> bool:
    if _KEY_OF_SECRET.fullmatch(key) or _REFERENCE_KEY.search(key):
        return False
    found = _SECRET_KEY.search(key)
    return found is not None and found.end() == len(key)
