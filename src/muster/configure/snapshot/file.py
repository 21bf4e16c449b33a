"""Snapshot files: what `muster snapshot --file` wrote, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from muster import yamlio
from muster.configure.snapshot import model
from muster.configure.snapshot.model import ClusterSnapshot
from muster.errors import BadInputError
from muster.inventory import record
from muster.inventory.record import NodeSnapshot
from muster.resources.base import API_VERSION, from_object, to_object
from muster.resources.fingerprint import class_digest, fingerprint

MAX_BYTES = 256 * 1024 * 1024
"""Ten thousand nodes with two hundred readings each are about 200 MB of JSON."""


def content_of(snapshot: NodeSnapshot | ClusterSnapshot) -> dict[str, Any]:
    """Plain values for a file: apiVersion and kind first."""
    content: dict[str, Any] = {"apiVersion": snapshot.api_version, "kind": snapshot.kind}
    content |= to_object(snapshot)
    return content


def json_text(snapshot: NodeSnapshot | ClusterSnapshot) -> str:
    """The same as JSON text, without the plain values in between: they would need ten times the memory."""
    head = msgspec.json.encode({"apiVersion": snapshot.api_version, "kind": snapshot.kind})
    joined = head[:-1] + b"," + msgspec.json.encode(snapshot)[1:]
    return msgspec.json.format(joined, indent=2).decode() + "\n"


def read_snapshot(path: Path) -> NodeSnapshot | ClusterSnapshot:
    """The snapshot in a YAML or JSON file. Raises BadInputError in one sentence, also for one edited by hand."""
    content = _load(path)
    kinds: dict[str, type[NodeSnapshot] | type[ClusterSnapshot]] = {
        record.KIND: NodeSnapshot,
        model.KIND: ClusterSnapshot,
    }
    kind = content.get("kind") if isinstance(content, dict) else None
    if not isinstance(content, dict) or content.get("apiVersion") != API_VERSION or str(kind) not in kinds:
        raise BadInputError(f"{path} is no snapshot of {API_VERSION}; make one with 'muster snapshot -o FILE'.")
    try:
        snapshot = from_object(kinds[str(kind)], content)
        if isinstance(snapshot, NodeSnapshot):
            _check(snapshot, path)
    except (msgspec.ValidationError, ValueError) as error:
        raise BadInputError(f"{path} is no usable snapshot: {error}; record it again.") from error
    return snapshot


def _load(path: Path) -> Any:
    if path.suffix == ".json":
        try:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise BadInputError(f"{path} is larger than {MAX_BYTES // 1024 // 1024} MiB; it is no snapshot.")
            return msgspec.json.decode(data)
        except OSError as error:
            raise BadInputError(f"Cannot read {path}: {error.strerror or error}.") from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadInputError(f"{path} is not valid JSON: {error}.") from error
    return yamlio.load(path)


def _check(snapshot: NodeSnapshot, path: Path) -> None:
    kept = fingerprint(snapshot.readings)
    stated = {c: class_digest(kept.readings, (c,)) for c in {r.reading_class for r in kept.readings}}
    wrong = [c.value for c in sorted(stated) if snapshot.digests.get(c.value) != stated[c]]
    if wrong or kept.digest != snapshot.fingerprint:
        raise BadInputError(
            f"{path} was changed after it was recorded (its fingerprint does not fit its readings); record it again."
        )
