"""A folder as one reproducible tar.gz, and back: same files, same bytes; unpacking trusts nothing. Pure."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from pathlib import PurePosixPath

from muster.configure.registry.tree import MAX_BYTES, MAX_DEPTH, MAX_FILES, Tree, TreeFile
from muster.errors import BadInputError

MAX_PACKED_BYTES = 64 * 1024 * 1024
_BLOCK = 1024 * 1024
_OVERHEAD = 4096
"""At most so many bytes of headers and padding a file."""


def pack(tree: Tree) -> bytes:
    """`tree` as tar.gz: sorted, owner 0, time 0, modes 0644 and 0755. Same tree, same bytes with the same zlib."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(tree):
            entry = tarfile.TarInfo(name)
            entry.size = len(tree[name].content)
            entry.mode = 0o755 if tree[name].executable else 0o644
            archive.addfile(entry, io.BytesIO(tree[name].content))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as stream:
        stream.write(plain.getvalue())
    return packed.getvalue()


def unpack(packed: bytes, source: str) -> Tree:
    """The files in a tar.gz. `source` names it in errors.

    Raises BadInputError for an archive that is damaged, that unpacks to more than 64 MiB or 10,000 files, or that
    holds a link, a device, a file twice, or a path that leads outside.
    """
    found: dict[str, TreeFile] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(_inflate(packed, source)), mode="r:") as archive:
            for entry in archive:
                if entry.isdir():
                    continue
                name = _clean_name(entry.name, source)
                if not entry.isreg():
                    raise BadInputError(
                        f"{source} holds {name!r}, which is a link or no regular file; do not use it."
                    )
                if name in found or len(found) >= MAX_FILES:
                    raise BadInputError(
                        f"{source} holds {name!r} twice, or more than {MAX_FILES} files; do not use it."
                    )
                content = archive.extractfile(entry)
                data = content.read() if content is not None else b""
                found[name] = TreeFile(data, bool(entry.mode & 0o100))
    except (tarfile.TarError, EOFError, ValueError, RecursionError) as error:
        raise BadInputError(f"{source} is no tar archive that can be read; push it again.") from error
    for name in found:
        if any(str(parent) in found for parent in PurePosixPath(name).parents):
            raise BadInputError(f"{source} holds {name!r} below a file; do not use it.")
    return {name: found[name] for name in sorted(found)}


def _inflate(packed: bytes, source: str) -> bytes:
    limit = MAX_BYTES + MAX_FILES * _OVERHEAD
    unzip = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    total = 0
    try:
        waiting = packed
        while waiting and not unzip.eof:
            parts.append(unzip.decompress(waiting, _BLOCK))
            waiting = unzip.unconsumed_tail
            total += len(parts[-1])
            if total > limit:
                raise BadInputError(f"{source} unpacks to more than {MAX_BYTES // 2**20} MiB; do not use it.")
    except zlib.error as error:
        raise BadInputError(f"{source} is no gzip archive that can be read; push it again.") from error
    if not unzip.eof or unzip.unused_data:
        raise BadInputError(f"{source} ends too early or goes on after its end; push it again.")
    return b"".join(parts)


def _clean_name(name: str, source: str) -> str:
    name = name.removeprefix("./")
    parts = PurePosixPath(name).parts
    if (
        not name
        or name.startswith("/")
        or str(PurePosixPath(name)) != name
        or ".." in parts
        or "\\" in name
        or not name.isprintable()
        or len(parts) > MAX_DEPTH
        or any(len(part.encode()) > 255 for part in parts)
    ):
        raise BadInputError(f"{source} holds the path {name[:120]!r}, which leads outside; do not use it.")
    return name
