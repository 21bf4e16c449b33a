"""Where a bundle will lie for deployers that fetch it themselves: Argo CD, Argo CD with Helm, Flux."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.errors import BadInputError

UNSET_REPOSITORY = "https://repository-not-set.invalid/bundle.git"
"""Stands where the address of the repository belongs until one is given; `.invalid` never resolves (RFC 2606)."""

DEFAULT_REVISION = "HEAD"

_HOST = r"[A-Za-z0-9.-]+(:[0-9]{1,5})?"
_GIT = re.compile(
    rf"(https?://{_HOST}|ssh://([A-Za-z0-9._-]+@)?{_HOST})/\S+|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:\S+", re.ASCII
)
_OCI = re.compile(rf"oci://{_HOST}(/[a-z0-9]+([._-]+[a-z0-9]+)*)+", re.ASCII)
_CREDENTIALS = re.compile(r"[a-z]+://[^/\s@]*:[^/\s@]*@", re.ASCII)
_REF = re.compile(r"[A-Za-z0-9._/-]{1,200}", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|sha256:[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Repository:
    """Where the bundle will lie: a Git repository, or an artifact in an OCI registry."""

    url: str = UNSET_REPOSITORY
    """`https://`, `ssh://`, `git@host:path` or `oci://host/repository`."""
    revision: str = DEFAULT_REVISION
    """Git: branch, tag or commit. OCI: tag or `sha256:...`."""
    path: str = "."
    """Folder of the bundle in there."""

    @property
    def is_oci(self) -> bool:
        return self.url.startswith("oci://")

    def inside(self, relative: str) -> str:
        return relative if self.path in ("", ".") else f"{self.path.strip('/')}/{relative}"


def check_repository(repository: Repository) -> None:
    """Raise BadInputError unless the address, revision and path can be written into the objects of a deployer."""
    shown = repository.url[:80]
    if _CREDENTIALS.match(repository.url):
        raise BadInputError("--repo holds a password; leave it out and give the deployer credentials in a Secret.")
    if not (_OCI if repository.is_oci else _GIT).fullmatch(repository.url):
        raise BadInputError(
            f"--repo {shown!r} is no address of a repository; give https://, ssh://, git@host:path or oci://host/name."
        )
    if repository.is_oci and repository.revision == DEFAULT_REVISION:
        raise BadInputError(f"--repo {shown!r} needs --revision with the tag under which the bundle will be pushed.")
    if not (_TAG if repository.is_oci else _REF).fullmatch(repository.revision):
        wanted = "a tag or sha256:DIGEST" if repository.is_oci else "a branch, tag or commit"
        raise BadInputError(
            f"--revision {repository.revision[:80]!r} is no revision of that repository; give {wanted}."
        )
    if not _REF.fullmatch(repository.path) or ".." in repository.path or repository.path.startswith(("/", "-")):
        raise BadInputError(
            f"--repo-path {repository.path[:80]!r} is no folder in a repository; give a relative path."
        )
