"""Finds the few lines of a large log that any detector could care about, at a cost near that of counting lines.

A block of lines is first reduced to the characters that tell the needles apart (two passes in C); only where the
reduced needle occurs in the reduced block is the needle itself searched for. Memory is bounded by the block size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from muster.read.source import MAX_LINE_BYTES, is_text

BLOCK_BYTES = 64 * 1024
"""Small, so that one interesting line makes only its neighbourhood expensive."""

_KEPT = b"\nABCDEFGHIJKLMNOPQRSTUVWXYZ/_fgklvx"
_DROPPED = bytes(byte for byte in range(256) if byte not in _KEPT)

NEEDLES: tuple[bytes, ...] = (
    b"NVRM",
    b"Xid (",
    b"NVSwitch",
    b"ERROR",
    b"GPU reset executed",
    b"mlx5_core",
    b"WATCHDOG",
    b"]: segfault at ",
    b"EXT4-fs",
    b"XFS (",
    b"READ) flags",
    b"WRITE) flags",
    b"I/O error, dev ",
    b"nvme nvme",
    b"Kernel panic - not",
    b"Linux version ",
    b"BUG: ",
    b"LOCKUP",
    b"stall on CPU",
    b"stalls on CPU",
    b"blocked for more than ",
    b"ut of memory: Kill",
    b"EDAC MC",
    b"Hardware Error]",
    b"AER:",
    b"PCIe Bus Error",
    b"available PCIe bandwidth",
    b'MESSAGE":[',
    b'MESSAGE": [',
    b'MESSAGE" : [',
)
"""One of these occurs in every line that a detector understands."""

_REDUCED: dict[bytes, tuple[bytes, ...]] = {
    short: tuple(needle for needle in NEEDLES if needle.translate(None, _DROPPED) == short)
    for short in (needle.translate(None, _DROPPED) for needle in NEEDLES)
}
RECORDS_WITHIN_BYTES = 2 * 1024 * 1024
"""Records are counted up to this size only: it would cost as much as the rest of the scan."""


@dataclass(slots=True)
class Candidate:
    """A line worth parsing. `cut`: it is the end of the file and has no line end."""

    number: int
    line: bytes
    cut: bool = False


@dataclass(slots=True)
class Tally:
    """What the scan learns about the file beside the candidates."""

    lines: int = 0
    size_bytes: int = 0
    blank: int = 0
    indented: int = 0
    """Lines that begin with a blank: they continue the record before them."""
    bracketed: int = 0
    """Lines that begin with `[`."""
    oversized: int = 0
    """Lines of which only the first MAX_LINE_BYTES were read."""
    has_text: bool = False
    ends_complete: bool = True
    """The file ends with a line end."""
    last_line: bytes = field(default=b"")

    @property
    def records_known(self) -> bool:
        return self.size_bytes <= RECORDS_WITHIN_BYTES


def interesting(line: bytes) -> bool:
    """True when a detector may understand `line`."""
    return any(needle in line for needle in NEEDLES)


def candidates(chunks: Iterable[bytes], tally: Tally) -> Iterator[Candidate]:
    """The lines worth parsing, in order, with their numbers from 1; `tally` is complete once this is exhausted."""
    number = 1
    for block, complete in _blocks(chunks, tally):
        _count(block, complete, tally)
        reduced = block.translate(None, _DROPPED)
        yield from _scan(block, reduced, number, complete)
        number += reduced.count(b"\n")
    tally.lines = number - 1 + (0 if tally.ends_complete else 1)


def _blocks(chunks: Iterable[bytes], tally: Tally) -> Iterator[tuple[bytes, bool]]:
    """Blocks of whole lines (complete: they end with a line end). A line beyond the limit is cut to it."""
    rest = b""
    skipping = False
    for chunk in chunks:
        for start in range(0, len(chunk), BLOCK_BYTES):
            piece = chunk[start : start + BLOCK_BYTES] if len(chunk) > BLOCK_BYTES else chunk
            if skipping:
                end = piece.find(b"\n")
                if end < 0:
                    continue
                piece, skipping = piece[end:], False
                tally.blank -= 1  # the rest of the cut line is no line of its own
            end = piece.rfind(b"\n") + 1
            if end == 0:
                rest += piece
            elif end == len(piece) and not rest:
                yield piece, True
            else:
                yield b"".join((rest, memoryview(piece)[:end])), True
                rest = piece[end:]
            if len(rest) > MAX_LINE_BYTES:
                tally.oversized += 1
                yield rest[:MAX_LINE_BYTES], True
                rest, skipping = b"", True
    if rest or skipping:
        tally.ends_complete = False
        if rest:
            yield rest, False


def _count(block: bytes, complete: bool, tally: Tally) -> None:
    tally.size_bytes += len(block)
    if not complete:
        tally.last_line = block
    if not tally.has_text:
        tally.has_text = any(is_text(line) for line in block.split(b"\n"))
    if not tally.records_known:
        return
    tally.indented += block.count(b"\n ") + block.count(b"\n\t") + (block[:1] in (b" ", b"\t"))
    tally.bracketed += block.count(b"\n[") + (block[:1] == b"[")
    if b"\n\n" in block or b"\n\r\n" in block or block[:1] in (b"\n", b"\r"):
        lines = block.split(b"\n")
        tally.blank += sum(1 for line in lines[: -1 if complete else None] if not line.strip(b"\r"))


def _scan(block: bytes, reduced: bytes, number: int, complete: bool) -> Iterator[Candidate]:
    spans: dict[int, int] = {}
    for short, needles in _REDUCED.items():
        if short in reduced:
            for needle in needles:
                _spans_of(block, needle, spans)
    if block[:1].isdigit() and (b",c;" in block or b",+;" in block):
        # A fragment of /dev/kmsg needs the record that it continues.
        for mark in (b",c;", b",+;"):
            _spans_of(block, mark, spans, with_previous=True)
    line, counted = number, 0
    for start in sorted(spans):
        end = spans[start]
        line += block.count(b"\n", counted, start)
        counted = start
        text = block[start : min(end, start + MAX_LINE_BYTES)]
        yield Candidate(line, text.rstrip(b"\r"), cut=not complete and end == len(block))


def _spans_of(block: bytes, needle: bytes, spans: dict[int, int], with_previous: bool = False) -> None:
    """Add start -> end of every line of `block` that holds `needle`."""
    at = block.find(needle)
    while at != -1:
        start = block.rfind(b"\n", 0, at) + 1
        end = block.find(b"\n", at)
        end = len(block) if end < 0 else end
        spans[start] = end
        if with_previous and start > 1:
            spans[block.rfind(b"\n", 0, start - 1) + 1] = start - 1
        at = block.find(needle, end)
