"""Where a bundle will lie for deployers that fetch it themselves: Argo CD, Argo CD with Helm, Flux."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.errors import BadInputError

UNSET_REPOSITORY = "https://repository-not-set.invalid/bundle.git"
"""Stands where the address of the Git repository belongs until one is given; `.invalid` never resolves (RFC 2606)."""

_URL = re.compile(r"((https?|ssh)://[^\s/]+/\S+|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:\S+)", re.ASCII)
_REF = re.compile(r"[A-Za-z0-9._/-]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Repository:
    """Where the bundle will lie in Git."""

    url: str = UNSET_REPOSITORY
    revision: str = "HEAD"
    path: str = "."

    def inside(self, relative: str) -> str:
        return relative if self.path in ("", ".") else f"{self.path.strip('/')}/{relative}"


def check_repository(repository: Repository) -> None:
    """Raise BadInputError unless the address, revision and path can be written into an Application."""
    if not _URL.fullmatch(repository.url):
        raise BadInputError(
            f"--repo {repository.url[:80]!r} is no Git address; give https://, ssh:// or git@host:path."
        )
    if not _REF.fullmatch(repository.revision):
        raise BadInputError(
            f"--revision {repository.revision[:80]!r} is no Git revision; give a branch, tag or commit."
        )
    if not _REF.fullmatch(repository.path) or ".." in repository.path:
        raise BadInputError(
            f"--repo-path {repository.path[:80]!r} is no folder in a repository; give a relative path."
        )
