"""Bundles in OCI registries: only whole ones go out, only whole ones come in."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from muster.configure.bundles import build as bundles
from muster.errors import BadInputError, NotSatisfiedError

MEDIA_TYPE = "application/vnd.muster.bundle.v1"


def push(folder: Path, reference: str, *, plain_http: bool = False) -> str:
    """Push the bundle at `folder` to `oci://host/repository[:tag]`. Returns the digest of the manifest.

    Raises NotSatisfiedError when a file was changed, BadInputError for a bad reference, UnreachableError.
    """
    bundles.verify(folder)
    from muster.configure.registry.artifacts import push_folder

    return push_folder(folder, reference, media_type=MEDIA_TYPE, plain_http=plain_http)


def pull(reference: str, folder: Path, *, plain_http: bool = False, require_digest: bool = False) -> tuple[str, int]:
    """Pull a bundle into the new or empty `folder`, all or nothing. Returns (manifest digest, number of files).

    Raises BadInputError when `folder` is in use or what was pulled is no bundle, NotSatisfiedError when it is not
    whole, UnreachableError.
    """
    try:
        bundles.require_free(folder, remedy="give another folder, or remove it first")
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise BadInputError(f"Cannot write to {str(folder)[:120]}: {error.strerror}.") from error
    from muster.configure.registry.artifacts import pull_folder

    try:
        fresh = staging / folder.name
        digest = pull_folder(
            reference, fresh, media_type=MEDIA_TYPE, plain_http=plain_http, require_digest=require_digest
        )
        try:
            count, _ = bundles.verify(fresh)
        except (BadInputError, NotSatisfiedError) as error:
            reason = str(error).replace(f"{staging}/", "")
            raise type(error)(f"{reference[:200]} holds no whole bundle: {reason}") from error
        for path in fresh.rglob("*.sh"):
            path.chmod(0o755)
        try:
            fresh.rename(folder)
        except OSError as error:
            raise BadInputError(
                f"Cannot write to {folder}: {error.strerror}; give an empty or new folder."
            ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return digest, count
