"""Folders as values: every regular file of a folder, bounded, without links; and written back all or nothing."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.errors import BadInputError

MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_BYTES = 64 * 1024 * 1024
MAX_FILES = 10_000
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A regular file: its bytes, and whether its owner may run it."""

    content: bytes
    executable: bool = False


Tree = Mapping[str, TreeFile]
"""Relative path with `/` -> file, sorted by path. Empty folders are not kept."""


def read_tree(folder: Path, max_file_bytes: int = MAX_FILE_BYTES, max_bytes: int = MAX_BYTES) -> Tree:
    """Read every file below `folder`.

    Raises BadInputError for a folder that cannot be read, for a link or another thing that is no regular file, for a
    name that is no plain text, and for more than `max_bytes`, 10,000 files or 16 levels.
    """
    try:
        is_folder = folder.is_dir()
    except OSError as error:
        raise BadInputError(f"Cannot read {str(folder)[:200]}: {error.strerror or error}.") from error
    if not is_folder:
        raise BadInputError(f"{str(folder)[:200]} is no folder; give the path of one.")
    found: dict[str, TreeFile] = {}
    total = 0
    for path, name in _walk(folder, folder, 0):
        found[name] = _read(path, max_file_bytes)
        total += len(found[name].content)
        if len(found) > MAX_FILES or total > max_bytes:
            raise BadInputError(
                f"{str(folder)[:200]} holds more than {max_bytes // 2**20} MiB or {MAX_FILES} files; leave out what "
                "does not belong there."
            )
    return {name: found[name] for name in sorted(found)}


def _walk(root: Path, folder: Path, depth: int) -> Iterator[tuple[Path, str]]:
    """Every file with its name relative to `root`."""
    if depth > MAX_DEPTH:
        raise BadInputError(f"{str(folder)[:200]} lies deeper than {MAX_DEPTH} folders; flatten it.")
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise BadInputError(f"Cannot read {str(folder)[:200]}: {error.strerror or error}.") from error
    for entry in listed:
        name = Path(entry.path).relative_to(root).as_posix()
        if not name.isprintable():
            raise BadInputError(f"{str(root)[:200]} holds a file with the unreadable name {name[-80:]!r}; rename it.")
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, Path(entry.path), depth + 1)
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path), name
        else:
            raise BadInputError(
                f"{str(root)[:200]} holds {name[:120]!r}, which is a link or no regular file; put a copy there."
            )


def _read(path: Path, limit: int) -> TreeFile:
    try:
        # Not followed: what was a file a moment ago may be a link by now.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            mode = os.fstat(handle).st_mode
            content = file.read(limit + 1) if stat.S_ISREG(mode) else None
    except OSError as error:
        raise BadInputError(f"Cannot read {str(path)[:200]}: {error.strerror or error}.") from error
    if content is None:
        raise BadInputError(f"{str(path)[:200]} is no regular file; put one there.")
    if len(content) > limit:
        raise BadInputError(f"{str(path)[:200]} is larger than {limit // 2**20} MiB; make it smaller.")
    return TreeFile(content, bool(mode & stat.S_IXUSR))


def write_tree(tree: Tree, folder: Path) -> None:
    """Write `tree` as `folder`, which must be absent or empty: either all of it is there afterwards or nothing.

    The paths in `tree` must be relative and clean. Raises BadInputError when the folder is not empty or cannot be
    written.
    """
    partial: Path | None = None
    try:
        if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
            raise BadInputError(f"{str(folder)[:200]} exists already and is not an empty folder; give a new one.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".muster-", dir=folder.parent))
        for name, file in tree.items():
            target = partial / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(0o755 if file.executable else 0o644)
        partial.chmod(0o755)
        partial.replace(folder)
        partial = None
    except OSError as error:
        raise BadInputError(f"Cannot write {str(folder)[:200]}: {error.strerror or error}.") from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
