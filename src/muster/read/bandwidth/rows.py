"""One row of an nccl-tests table: columns by the header, or guessed from the words where there is none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.read.bandwidth.table import Figure, Half, Row

_NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,3})?|nan|inf)", re.IGNORECASE)
_LEAST_RESOLUTION = 1e-300
_TIMES = ("time", "cputime")
_WRONG = {"#wrong": "wrong", "wrong": "wrong", "error": "error", "errors": "wrong"}
_NODES = ("node", "nodes", "nnodes")
_TYPE_NAMES = """
int8 uint8 char int32 int int64 uint32 uint64 half float16 float float32 double float64 bfloat16 fp8_e4m3
fp8_e5m2 f8e4m3 f8e5m2 f8 mixed bf16 fp16 fp32 fp64
"""
_TYPES = frozenset(_TYPE_NAMES.split())


def figure(text: str) -> Figure | None:
    """A printed number with its resolution; `nan` and `inf` are numbers here. None for anything else."""
    if _NUMBER.fullmatch(text) is None:
        return None
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    resolution = 0.5 * float(f"1e{int(exponent or 0) - decimals}")
    return Figure(float(text), max(resolution, _LEAST_RESOLUTION))


def header_columns(text: str) -> tuple[str, ...] | None:
    """Names of the columns of a header line, without the leading `#`."""
    names = text.split()
    start = next((i for i, name in enumerate(names) if name in ("size", *_NODES)), None)
    columns = tuple(names[start:]) if start is not None else ()
    half = next((i for i, name in enumerate(columns) if name in _TIMES), None)
    return columns if half is not None and columns[half + 1 : half + 3] == ("algbw", "busbw") else None


def from_size(tokens: list[str], columns: tuple[str, ...] | None) -> list[str]:
    """The words from the first column on, whatever stands in front; empty for a line that is no row."""
    if len(tokens) > 60:
        return []
    if _is_count(tokens[0]):
        return tokens
    lead = 1 if columns is not None and columns[0] in _NODES else 0
    for i in range(min(len(tokens) - 2 - lead, 12)):
        start = tokens[i : i + 3 + lead]
        if all(map(_is_count, start[:-1])) and start[-1] in _TYPES:
            return tokens[i:]
    return []


def read_row(
    number: int, text: str, tokens: Sequence[str], columns: tuple[str, ...] | None
) -> tuple[Row, str] | None:
    """A row and the meaning of its last column; None when the line is no whole row."""
    names = columns or _guess(tokens)
    if names is None:
        return None
    if "timestamp" in names:  # a date and a time of day: two words
        names = tuple(name for name in names if name != "timestamp")
        tokens = tokens[: len(names)] if len(tokens) == len(names) + 2 else tokens
    only_in_place = False
    if len(tokens) != len(names):
        width = len(names) - _half_width(names)
        only_in_place = (
            len(tokens) == width and _second_half(names) > 0 and re.search(r"\S {30,}\S", text) is not None
        )
        if not only_in_place:
            return None
        first, second = _halves(names)
        names = (*names[:first], *names[second:])
    found = _row_of(number, names, tokens, only_in_place)
    return found if found is None or columns is not None or _plausible(found[0]) else None


def row_lead(tokens: Sequence[str], columns: tuple[str, ...] | None) -> list[str]:
    """The columns up to the first time, where a line has those of a row and then something else; else empty.

    The program prints them before it runs the size; a library that logs meanwhile gets between them and the figures.
    """
    width = next((i for i, name in enumerate(columns or ()) if name in _TIMES), 0)
    lead = list(tokens[:width])
    if width < 2 or len(lead) < width or not _is_count(lead[0]) or not _is_count(lead[1]):
        return []
    if columns is not None and columns[width - 1] == "root":
        root = re.match(r"-?\d{1,9}", lead[-1])
        lead[-1] = root[0] if root is not None else ""
    return lead if lead[-1] else []


def _plausible(row: Row) -> bool:
    """Without a header: algbw is size over time, else the columns were guessed wrong."""
    for half in row.halves:
        if half.finite and (half.time_us < 0 or (row.size and not half.time_us)):
            return False
        if half.finite and row.size:
            rate = row.size / half.time_us / 1e3
            if abs(rate - half.algbw.value) > 0.1 * rate + 2 * half.algbw.resolution:
                return False
    return True


def _row_of(number: int, names: Sequence[str], tokens: Sequence[str], only_in_place: bool) -> tuple[Row, str] | None:
    first = next((i for i, name in enumerate(names) if name in _TIMES), None)
    if first is None:
        return None
    lead = dict(zip(names[:first], tokens[:first], strict=True))
    if not _is_count(lead.get("size")) or not _is_count(lead.get("count", "0")):
        return None
    halves: list[Half] = []
    kind = "wrong"
    for start in (i for i, name in enumerate(names) if name in _TIMES):
        half = _half(names[start:], tokens[start:])
        if half is None:
            return None
        halves.append(half[0])
        kind = half[1]
    root = lead.get("root")
    nodes = next((int(lead[name]) for name in _NODES if _is_count(lead.get(name))), None)
    if root is not None and re.fullmatch(r"-?\d{1,9}", root) is None:
        return None
    row = Row(
        line=number,
        size=int(lead["size"]),
        count=int(lead.get("count", "0")),
        type=lead.get("type", ""),
        redop=lead.get("redop"),
        root=int(root) if root is not None else None,
        out_of_place=None if only_in_place else halves[0],
        in_place=halves[-1] if only_in_place or len(halves) > 1 else None,
        nodes=nodes,
    )
    return row, kind


def _half(names: Sequence[str], tokens: Sequence[str]) -> tuple[Half, str] | None:
    """The half that begins at the first of `names`: time, algbw, busbw and, where printed, the check."""
    if len(tokens) < 3 or tuple(names[1:3]) != ("algbw", "busbw"):
        return None
    time, algbw, busbw = figure(tokens[0]), figure(tokens[1]), figure(tokens[2])
    if time is None or algbw is None or busbw is None:
        return None
    checked = len(names) > 3 and names[3] in _WRONG
    kind = _WRONG[names[3]] if checked else "wrong"
    if not checked or tokens[3] in ("N/A", "n/a"):
        return Half(time.value, algbw, busbw, None), kind
    check = figure(tokens[3])
    if check is None:
        return None
    if kind == "error":
        return Half(time.value, algbw, busbw, None, check.value), kind
    wrong = int(check.value) if check.finite and check.value >= 0 else None
    return Half(time.value, algbw, busbw, wrong), kind


def _is_count(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdigit() and len(text) <= 18


def _halves(names: Sequence[str]) -> tuple[int, int]:
    starts = [i for i, name in enumerate(names) if name in _TIMES]
    return starts[0], starts[1] if len(starts) > 1 else len(names)


def _half_width(names: Sequence[str]) -> int:
    first, second = _halves(names)
    return second - first


def _second_half(names: Sequence[str]) -> int:
    return len(names) - _halves(names)[1]


def _guess(tokens: Sequence[str]) -> tuple[str, ...] | None:
    """Columns of a row without a header, from its width and the kinds of its words."""
    if len(tokens) not in (11, 12, 13) or not tokens[1].isdigit() or tokens[2] not in _TYPES:
        return None
    lead: tuple[str, ...] = ("size", "count", "type")
    if len(tokens) == 13:
        lead += ("redop", "root")
    elif len(tokens) == 12:
        lead += ("root",) if re.fullmatch(r"-?\d{1,9}", tokens[3]) else ("redop",)
    check = tokens[-1]
    last = "#wrong" if check in ("N/A", "n/a") or check.isdigit() else "error"
    half = ("time", "algbw", "busbw", last)
    return (*lead, *half, *half)
