"""Which object of a layer's manifest patches which object below it. Pure.

Objects are the same when API group, kind, namespace, name and condition are. The name may be a placeholder and the
condition is `$when` or `$unless`, see `parameters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from muster.configure.parameters import UNLESS, WHEN
from muster.configure.values import Values
from muster.errors import BadInputError

_CONDITION = " if "


def by_identity(objects: Any, source: str) -> Values:
    """Copies of `objects` by their identity. Raises BadInputError for one without, or given twice."""
    found: Values = {}
    for item in objects if isinstance(objects, list) else [objects]:
        key = _identity(item, source)
        if key in found:
            raise BadInputError(f"{source} holds {item['kind']} {key.rpartition('/')[2][:80]} twice; keep one.")
        found[key] = msgspec.json.decode(msgspec.json.encode(item))
    return found


def _identity(item: Any, source: str) -> str:
    metadata = item.get("metadata") if isinstance(item, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    kind, version = (item.get("kind"), item.get("apiVersion")) if isinstance(item, Mapping) else (None, None)
    if not (isinstance(kind, str) and isinstance(version, str) and name and isinstance(name, (str, Mapping))):
        raise BadInputError(
            f"{source} holds something that is no Kubernetes object; each needs apiVersion, kind and a name."
        )
    group, namespace = version.rpartition("/")[0], (metadata or {}).get("namespace", "")
    conditions = "".join(f"{_CONDITION}{form} {_text(item[form])}" for form in (WHEN, UNLESS) if form in item)
    return f"{group}/{kind}/{_text(namespace)}/{_text(name)}{conditions}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def onto(below: Values, patch: Values, source: str) -> Values:
    """`patch` with the keys of what it patches: an object without a condition also means the one that has one.

    Raises BadInputError when it could mean several.
    """
    keyed: Values = {}
    for key, item in patch.items():
        conditional = [k for k in below if k.startswith(f"{key}{_CONDITION}")]
        if key in below or not conditional:
            keyed[key] = item
        elif len(conditional) == 1:
            keyed[conditional[0]] = item
        else:
            raise BadInputError(
                f"{source} patches {item['kind']} {key.rpartition('/')[2][:80]}, which is there under several "
                f"conditions; state {WHEN} or {UNLESS} too."
            )
    return keyed
