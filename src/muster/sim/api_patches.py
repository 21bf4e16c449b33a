"""Patches: JSON patch, JSON merge patch and strategic merge patch, from the patch to the next stored version."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from muster.kube.api import Object, PatchType
from muster.sim.api_conversion import from_storage
from muster.sim.api_decoding import checked_patch, go_text, patched_identity_fault
from muster.sim.api_kinds import Kind
from muster.sim.api_metadata import check_address
from muster.sim.api_status import StatusError, bad_request, too_large, unknown_format
from muster.sim.api_writes import check_subresource, copied, replace
from muster.sim.history import Version
from muster.sim.patch_json import MAX_OPERATIONS, PatchError, apply_json_patch
from muster.sim.patch_merge import apply_merge_patch
from muster.sim.patch_strategic import apply_strategic_patch

if TYPE_CHECKING:
    from muster.sim.store import Store, WriteOptions

_REJECTED = "the server rejected our request due to an error in our request"


def accepted_patches(kind: Kind) -> tuple[str, ...]:
    """The media types of patches that a resource takes."""
    strategic = () if kind.custom is not None else (str(PatchType.STRATEGIC),)
    return (str(PatchType.JSON), str(PatchType.MERGE), *strategic, "application/apply-patch+yaml")


def patch(
    store: Store,
    kind: Kind,
    name: str,
    patch: Any,
    patch_type: str,
    namespace: str,
    options: WriteOptions,
    subresource: str,
) -> Version:
    """Patch an object or its status. Raises StatusError: 400, 404, 409, 413, 415, 422, 500."""
    check_subresource(kind, subresource)
    if patch_type not in accepted_patches(kind):
        raise unknown_format(accepted_patches(kind))
    patch = copied(patch)
    version = store.get(kind, name, namespace)
    convert = from_storage(kind)
    old = version.obj if convert is None else convert(version.obj)
    new = _patched(kind, old, patch, patch_type)
    fault = patched_identity_fault(store, kind, new)
    if fault is not None:
        raise fault
    strategic = patch_type == PatchType.STRATEGIC
    new = checked_patch(kind, new, old, options, lambda: go_text(patch) if strategic else _text(new))
    metadata = new["metadata"]
    if not kind.namespaced and "namespace" in metadata:
        metadata = {field: value for field, value in metadata.items() if field != "namespace"}
        new = {**new, "metadata": metadata}
    check_address(metadata, name, old["metadata"].get("namespace", ""))
    return replace(store, kind, version, new, options, subresource)


def _patched(kind: Kind, old: Object, patch: Any, patch_type: str) -> Object:
    """The old object with the patch applied."""
    match patch_type:
        case PatchType.JSON:
            return _json_patched(old, patch)
        case PatchType.MERGE:
            if patch is None:
                raise bad_request("Invalid JSON Patch")
            if not isinstance(patch, dict):
                raise bad_request(f"error decoding patch: {_unmarshal(patch, 'map[string]interface {}')}")
            merged: Object = apply_merge_patch(old, patch)
            return merged
        case _:
            if not isinstance(patch, dict | None):
                raise bad_request(_unmarshal(patch, "map[string]interface {}"))
            try:
                found: Object = apply_strategic_patch(old, patch or {}, kind.shape)
            except PatchError as error:
                raise StatusError(500, "", str(error)) from None
            return found


def _json_patched(old: Object, patch: Any) -> Object:
    if not isinstance(patch, list):
        raise bad_request(f"error decoding patch: {_unmarshal(patch, '[]handlers.jsonPatchOp')}")
    if len(patch) > MAX_OPERATIONS:
        raise too_large(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}")
    for operation in patch:
        if not isinstance(operation, dict):
            raise bad_request(f"error decoding patch: {_unmarshal(operation, 'handlers.jsonPatchOp')}")
    try:
        new = apply_json_patch(old, patch)
    except PatchError:
        # A real server does not say which operation failed.
        raise StatusError(422, "Invalid", _REJECTED, detailed=True) from None
    if not isinstance(new, dict):
        raise StatusError(422, "Invalid", _REJECTED, detailed=True)
    return new


def _unmarshal(value: Any, wanted: str) -> str:
    what = "array" if isinstance(value, list) else "object" if isinstance(value, dict) else None
    if what is None:
        what = "string" if isinstance(value, str) else "bool" if isinstance(value, bool) else "number"
    return f"json: cannot unmarshal {what} into Go value of type {wanted}"


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
