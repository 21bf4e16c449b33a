"""A table of times or rates per rank (`rank,compute_ms,wait_ms`), with a step column or without: CSV, or YAML with a
list of ranks or with a mapping of ranks per phase (`forward_ms: {0: 41.2, 1: 40.9}`).

In a phase that is nothing but waiting for peers (a collective, a wait) the slow rank is the one that waits least: it
comes last, and is named for it. A phase that mixes work and waiting names nobody and passes nobody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from muster.errors import BadInputError
from muster.read.report import Incident, Report, Result, Value, Verdict
from muster.read.source import Context, Input, text_lines
from muster.read.tables.source import MAX_ROWS, content, csv_rows, number
from muster.read.tables.source import rows as rows_of
from muster.read.training.peers import MIN_PEERS, Peers
from muster.read.training.stragglers.reader import (
    MAX_RANKS,
    WAITING,
    Phase,
    judge,
    judge_stages,
    least_waiting,
    look_at,
    overall,
    phase_of,
    shown,
)
from muster.resources.fault import Hint, Scope, Severity

KIND: Final = "straggler"
RANK_COLUMNS: Final = ("rank", "global_rank", "rank_id")
_STEP_COLUMNS = ("step", "iteration", "iter")
_NODE_COLUMNS = ("node", "host", "hostname", "node_name")
_TIME = re.compile(
    r"time|_ms$|_s$|_us$|seconds|latency|duration|compute|forward|backward|optimi[sz]er|wait|elapsed|data|load"
    r"|reduce|gather|scatter|comm|barrier|sync",
    re.IGNORECASE,
)
_RATE = re.compile(
    r"_per_s(?:ec(?:ond)?)?\b|/s(?:ec)?\b|\b(?:tps|wps|it_s)\b|t?flops?\b|throughput|_gbps$|gb_s$|busbw|algbw|_rate$",
    re.IGNORECASE,
)
_PACE = re.compile(r"token|sample|step|iter|\b(?:tps|wps)\b|img|image|seq", re.IGNORECASE)
"""Rates that follow from the time of the whole step: all ranks of a synchronous job show the one of the slowest."""
_YAML_ROW = re.compile(r"^[ \t]*-[ \t]*\{?\s*[\"']?(?:global_)?rank[\"']?\s*:\s*\d", re.MULTILINE)
_YAML_RANKS = re.compile(
    r"(?:^|[{,])[ \t]{0,40}[\"']?(?P<name>[A-Za-z][\w .-]{0,80})[\"']?[ \t]{0,40}:[ \t]{0,40}"
    r"(?:(?:\{\s{0,40}|\n[ \t]{1,40})[\"']?\d{1,7}[\"']?[ \t]{0,40}:\s{0,40}[-+.\w{]"
    r"|\[\s{0,40}(?:[-+.\d]|\.?nan|null))",
    re.MULTILINE,
)
_PIPED = re.compile(r"^\s*\|(?P<cells>.*)\|\s*$")
_RULE = re.compile(r"[\s|:+=-]*")
_UNIT = re.compile(r"[_ (\[](?P<unit>ms|us|s)[)\]]?$", re.IGNORECASE)
MAX_DEPTH: Final = 4
LEAST_SHARE: Final = 0.05
"""Of all the time of a rank that is told: a batch that comes late by less costs nobody anything."""


def score(sample: bytes) -> float:
    """1 for a CSV header with a column of ranks and one of times, or ranks in YAML."""
    text = sample[:16384].decode("utf-8", "replace")
    if len(_YAML_ROW.findall(text)) >= 2 or any(_names_ranks(m["name"]) for m in _YAML_RANKS.finditer(text)):
        return 1.0
    lines = [line for line in text_lines(sample, 20) if line.strip() and not line.startswith("#")]
    piped = _PIPED.match(lines[0]) if lines else None
    parts = piped["cells"].split("|") if piped else re.split(r"[,;\t]", lines[0]) if lines else []
    cells = [cell.strip().strip('"').lower() for cell in parts]
    named = any(cell in RANK_COLUMNS for cell in cells) and any(_measured(cell) for cell in cells)
    return 1.0 if named and len(lines) >= 2 else 0.0


def _names_ranks(name: str) -> bool:
    return " " not in name and (_measured(name) or "rank" in name.lower())


def _measured(column: str) -> bool:
    """True for a column of times or rates."""
    return bool(_TIME.search(column) or _RATE.search(column))


def parse(inputs: Sequence[Input], context: Context) -> Report:
    """Compare the ranks of one table. Raises BadInputError when a row names no rank."""
    if len(inputs) != 1:
        raise BadInputError("Give one table of ranks at a time.")
    item = inputs[0]
    header, rows = _table(item)
    rank_column = next((c for c in header if c.lower() in RANK_COLUMNS), None)
    columns = [c for c in header if c != rank_column and _measured(c) and c.lower() not in _STEP_COLUMNS]
    if rank_column is None or not columns or not rows:
        raise BadInputError(f"{item.name} needs a column rank, a column of times, and at least one row.")
    node_column = next((c for c in header if c.lower() in _NODE_COLUMNS), None)
    nodes: dict[int, str] = {}
    read: dict[str, dict[int, list[float | None]]] = {column: {} for column in columns}
    for position, row in enumerate(rows, start=1):
        rank = _rank(item, row.get(rank_column, ""), position)
        if node_column and row.get(node_column):
            nodes[rank] = row[node_column]
        for column in columns:
            read[column].setdefault(rank, []).append(number(row.get(column)))
    return _report(item, {column: _typical(times) for column, times in read.items()}, nodes, context)


def _table(item: Input) -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows, all cells as text."""
    head = item.sample[:16384].decode("utf-8", "replace")
    if _PIPED.match(head.lstrip().partition("\n")[0]):
        return _piped(item)
    if not (_YAML_ROW.search(head) or _YAML_RANKS.search(head)):
        return csv_rows(item)
    from muster import yamlio  # a CSV needs no YAML

    loaded = yamlio.loads(content(item), item.name)
    parts = [loaded] if isinstance(loaded, list) else list(loaded.values()) if isinstance(loaded, dict) else []
    rows_told = any(isinstance(p, list) and p and isinstance(p[0], dict) and "rank" in p[0] for p in parts)
    if not rows_told and not isinstance(loaded, list) and (phases := _phases(loaded)):
        return _by_rank(item, phases)
    listed = next((p for p in parts if isinstance(p, list) and p and isinstance(p[0], dict) and "rank" in p[0]), None)
    if listed is None or len(listed) > MAX_ROWS:
        raise BadInputError(f"{item.name} needs one list of at most {MAX_ROWS} rows, each with a rank.")
    plain = rows_of(item, listed, "the list of ranks")
    header = list(dict.fromkeys(name for row in plain for name in row))
    return header, [{name: str(cell) for name, cell in row.items()} for row in plain]


def _piped(item: Input) -> tuple[list[str], list[dict[str, str]]]:
    """A table with bars, as in a report on the web: `| rank | backward_ms |`. Remarks behind a rank are left out."""
    lines = [
        m["cells"] for line in content(item).splitlines() if (m := _PIPED.match(line)) and not _RULE.fullmatch(line)
    ]
    table = [[cell.strip(" `*") for cell in line.split("|")] for line in lines]
    header, rows = table[0], table[1:]
    if len(rows) > MAX_ROWS or len(set(header)) != len(header):
        raise BadInputError(f"{item.name} needs a name for each column and at most {MAX_ROWS} rows.")
    named = [dict(zip(header, row, strict=False)) for row in rows]
    for row in named:
        for column in row.keys() & set(header):
            if column.lower() in RANK_COLUMNS and (
                match := re.match(r"(?:rank|r)?\s*(\d{1,7})\b", row[column], re.IGNORECASE)
            ):
                row[column] = match[1]
    return header, named


def _phases(loaded: object, depth: int = 0) -> dict[str, dict[str, Any]]:
    """Figures by phase and rank: mappings of ranks (or lists) under names of phases, or mappings of phases under
    ranks, at most MAX_DEPTH levels down. Of two phases with one name the first counts."""
    found: dict[str, dict[str, Any]] = {}
    if depth > MAX_DEPTH or not isinstance(loaded, dict | list):
        return found
    for name, part in loaded.items() if isinstance(loaded, dict) else enumerate(loaded[:MAX_ROWS]):
        if isinstance(part, list) and len(part) >= 2 and all(_is_figure(x) for x in part):
            part = dict(enumerate(part))
        by_rank = {str(key): value for key, value in part.items()} if isinstance(part, dict) else {}
        if by_rank and all(re.fullmatch(r"\d{1,7}", key) for key in by_rank):
            plain = {rank: x for rank, x in by_rank.items() if _is_figure(x)}
            if len(plain) == len(by_rank) and _measured(str(name)):
                found.setdefault(str(name), plain)
            for rank, inner in by_rank.items():
                for phase, x in inner.items() if isinstance(inner, dict) else ():
                    if _measured(str(phase)) and _is_figure(x):
                        found.setdefault(str(phase), {})[rank] = x
        else:
            found = _phases(part, depth + 1) | found
    return found


def _is_figure(value: object) -> bool:
    return value is None or isinstance(value, int | float | str)


def _by_rank(item: Input, phases: dict[str, dict[str, Any]]) -> tuple[list[str], list[dict[str, str]]]:
    ranks = sorted({rank for figures in phases.values() for rank in figures}, key=int)
    if len(ranks) > MAX_ROWS:
        raise BadInputError(f"{item.name} has more than {MAX_ROWS} ranks; split the file.")
    rows = [
        {"rank": rank} | {name: str(figures[rank]) for name, figures in phases.items() if rank in figures}
        for rank in ranks
    ]
    return ["rank", *phases], rows


def _rank(item: Input, text: str, position: int) -> int:
    if not re.fullmatch(r"\d{1,7}", text) or int(text) >= MAX_RANKS:
        raise BadInputError(f"Row {position} of {item.name} names no rank: {text!r:.40}.")
    return int(text)


def _typical(times: dict[int, list[float | None]]) -> dict[int, float | None]:
    """The median over the steps of each rank; None when a value is no number."""
    found: dict[int, float | None] = {}
    for rank, values in sorted(times.items()):
        usable = [value for value in values if value is not None]
        found[rank] = shown(median(usable), 9) if len(usable) == len(values) else None
    return found


def _report(
    item: Input, times: dict[str, dict[int, float | None]], nodes: dict[int, str], context: Context
) -> Report:
    judged: list[tuple[Phase, Verdict]] = []
    slow: set[int] = set()
    starved = _starved(times)
    last: set[int] = set()
    own: set[int] = set()
    alone = len(times) == 1
    values: dict[str, Value] = {"ranks": Value(max(len(column) for column in times.values()))}
    for column, figures in times.items():
        phase, rate = _phase(column), _RATE.search(column) is not None
        of = "job" if alone else f"phase {column}"
        verdict, ranks = judge_stages(of, figures, context, phase=phase, rate=rate)
        if phase is Phase.MIXED and rate:
            verdict, ranks = _pace(of, figures, verdict)
        elif phase is Phase.DATA and ranks:
            verdict, ranks = _data_verdict(of, sorted(set(ranks) & starved)), ()
        elif phase is Phase.WAITING and (ranks := _comes_last(figures)):
            # Who gets its batch late comes last: one cause, one word.
            reason = "data-stall" if set(ranks) <= starved else "straggler"
            text = f"Rank {', '.join(map(str, ranks[:8]))} waits far less than its peers: they wait for it."
            verdict = Verdict(of, Result.WARN, reason, text, {"basis": "waits-least"})
            last |= set(ranks)
        elif ranks:
            own |= set(ranks)
        judged.append((phase, verdict))
        slow |= set(ranks)
        _figures(values, "" if alone else f"{column}.", column, figures)
    verdicts = [verdict for _, verdict in judged]
    if not alone:
        verdicts.append(overall("job", judged))
    if any(phase is Phase.WAITING for phase, _ in judged):
        values["waits_least"] = Value(sorted(last))
    values["stragglers"] = Value(sorted(slow - starved))
    if starved:
        values["culprits"] = Value(sorted(starved))
        values["cause"] = Value("data-loading")
    # Who loads data long comes last; the rest follows from it.
    incidents = [*_incident("data-loading", starved), *_incident("straggler", slow - starved)]
    return Report(
        kind=KIND,
        files=(item.name,),
        truncated=False,
        incidents=tuple(incidents),
        verdicts=tuple(verdicts),
        values=values,
        next=_next(sorted(slow - starved), sorted(starved), last - own, nodes) or _measure(verdicts[-1]),
    )


def _phase(column: str) -> Phase:
    if _RATE.search(column):
        return Phase.MIXED if _PACE.search(column) else Phase.OWN
    return phase_of(column)


def _figures(values: dict[str, Value], prefix: str, column: str, figures: dict[int, float | None]) -> None:
    rate = _RATE.search(column) is not None
    unit = match["unit"].lower() if not rate and (match := _UNIT.search(column)) else None
    values[f"{prefix}{'rate' if rate else 'time'}"] = Value(figures, unit)
    known = {rank: x for rank, x in figures.items() if x is not None}
    if len(known) >= MIN_PEERS:
        peers = Peers({rank: -x if rate else x for rank, x in known.items()})
        worst = peers.slowest()
        values[f"{prefix}median"] = Value(shown(-peers.median if rate else peers.median, 9), unit)
        values[f"{prefix}mad"] = Value(shown(peers.mad, 9), unit)
        values[f"{prefix}robust_z_max"] = Value(shown(peers.z(worst), 4), None, {"rank": worst})


def _pace(of: str, figures: dict[int, float | None], verdict: Verdict) -> tuple[Verdict, tuple[int, ...]]:
    """A rate of the whole step. A rank below the others shows that the ranks do not wait for each other in it."""
    own, ranks = judge(of, figures, rate=True)
    return (own, ranks) if ranks else (verdict, ())


def _starved(times: dict[str, dict[int, float | None]]) -> set[int]:
    """Ranks whose data time stands out and is a real share of all the time that is told of them."""
    late: set[int] = set()
    for column, figures in times.items():
        if _phase(column) is not Phase.DATA:
            continue
        same = [other for name, other in times.items() if _unit(name) == _unit(column) and not _RATE.search(name)]
        for rank in judge("job", figures)[1]:
            total = sum(other.get(rank) or 0.0 for other in same)
            if len(same) == 1 or (figures[rank] or 0.0) >= LEAST_SHARE * total:
                late.add(rank)
    return late


def _data_verdict(of: str, late: Sequence[int]) -> Verdict:
    if not late:
        return Verdict(of, Result.PASS, "no-straggler")
    text = f"Rank {', '.join(map(str, late[:8]))} waited for data while the others waited for it."
    return Verdict(of, Result.WARN, "data-stall", text)


def _unit(column: str) -> str:
    return match["unit"].lower() if (match := _UNIT.search(column)) else ""


def _comes_last(figures: dict[int, float | None]) -> tuple[int, ...]:
    usable = len(figures) >= MIN_PEERS and all(x is not None for x in figures.values())
    return least_waiting(figures) if usable else ()


def _incident(root: str, ranks: set[int]) -> tuple[Incident, ...]:
    named = tuple(sorted(ranks))
    fields = {"ranks": list(named), "confidence": "low"}
    return (Incident(root, named, Severity.WARNING, Scope.JOB, Hint.INSPECT, fields),) if named else ()


def _next(slow: Sequence[int], starved: Sequence[int], last: set[int], nodes: dict[int, str]) -> str:
    def named(ranks: Sequence[int]) -> str:
        return ", ".join(f"{rank} ({nodes[rank]})" if nodes.get(rank) else str(rank) for rank in ranks[:8])

    advice = []
    if starved:
        advice.append(f"Look at the data loading of rank {named(starved)}; no GPU is at fault.")
    if slow and set(slow) <= last:
        advice.append(
            f"Measure the own work of rank {named(slow)}: it waits far less than its peers, so it comes last."
        )
    elif slow:
        advice.append(look_at(slow, nodes))
    return " ".join(advice)


def _measure(verdict: Verdict) -> str:
    if verdict.reason == WAITING:
        return "Time the own work of each rank (its forward pass) or its wait in the collective; these times hide it."
    return "Nothing has to be done."
