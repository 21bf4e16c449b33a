"""Values for people, without what may be secret: a live release can hold secrets that the recipe never had."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "(hidden)"
MAX_SHOWN = 160
_SECRET_KEY = re.compile(
    r"passw(or)?d|passphrase|pwd|(^|[_-])pass$|authorization|token|secret|api_?key|private_?key|access_?key|credential|htpasswd|dockerconfig"
    r"|\.?(auth|cert|key|pem|jwt|license)$",
    re.IGNORECASE,
)
_PASSWORD_KEY = re.compile(r"(passw(or)?d|passphrase|pwd)$", re.IGNORECASE)
_BESIDE_A_PLAIN_KEY = frozenset({"operator", "effect", "tolerationSeconds", "values"})
_REFERENCE_KEY = re.compile(r"(name|names|ref|refs|enabled|path|mountpath|namespace|kind|type|class)$", re.IGNORECASE)
_SECRET_TEXT = re.compile(
    r"-----BEGIN |hooks\.slack\.com/services/|://[^/\s:@]*:[^/\s@]+@"
    r"|\b(eyJ[\w-]{10,}\.|gh[pousr]_|github_pat_|glpat-|hf_[A-Za-z]|nvapi-|AKIA[A-Z0-9]{12}|xox[abp]-|sk-[A-Za-z0-9])"
    r"|\b(?=[A-Za-z0-9+/_-]*[0-9])(?=[A-Za-z0-9+/_-]*[a-z])(?=[A-Za-z0-9+/_-]*[A-Z])[A-Za-z0-9+/_-]{32,}={0,2}"
)


def shown(path: tuple[str, ...], value: Any) -> str:
    """`value` at `path` as short JSON; what looks like a secret, by its key or by itself, is hidden."""
    text = json.dumps(redacted(path, value), ensure_ascii=True, sort_keys=True, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def redacted(path: tuple[str, ...], value: Any) -> Any:
    """`value` at `path` with `HIDDEN` in place of what looks like a secret."""
    if isinstance(value, Mapping):
        named = value.get("name")
        # The key of a toleration, a selector or an entry of a Secret is a name, and no key to anything.
        plain = not _BESIDE_A_PLAIN_KEY.isdisjoint(value) or (bool(path) and path[-1].endswith("Ref"))

        def place(key: str) -> tuple[str, ...]:
            if key == "key" and plain:
                return ()
            # `{name: API_TOKEN, value: ...}`: the name says what the value is.
            return (*path, named if key == "value" and isinstance(named, str) else key)

        return {key: redacted(place(str(key)), item) for key, item in value.items()}
    if isinstance(value, list):
        return [redacted(path, item) for item in value]
    if isinstance(value, str) and value and (is_secret(path) or _SECRET_TEXT.search(value)):
        return HIDDEN
    # A password of digits is read as a number.
    if isinstance(value, int) and not isinstance(value, bool) and path and _PASSWORD_KEY.search(path[-1]):
        return HIDDEN
    return value


def is_secret(path: tuple[str, ...]) -> bool:
    """Whether the keys of `path` say that text below them may be a secret; the last key decides on references."""
    keys = [key for key in path if not key.startswith("[")]
    if not keys or _REFERENCE_KEY.search(keys[-1]):
        return False
    return any(_SECRET_KEY.search(key) for key in keys)
