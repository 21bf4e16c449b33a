"""Reads the text of NCCL's state query (`ncclras`, NCCL 2.24 and later), terse and verbose."""

from __future__ import annotations

import re
from dataclasses import replace

from muster.read.collectives.lines import Line
from muster.read.collectives.ras_state import Counts, Member, Peer, Row, Section, Snapshot

MAX_SECTIONS = 10_000
MAX_MEMBERS = 100_000
_VERSION = re.compile(r"NCCL version (?P<version>\d{1,3}(?:\.\d{1,3}){1,3})\S{0,40} compiled with CUDA")
_RUNTIME = re.compile(r"CUDA runtime version -?\d{1,6}, driver version -?\d{1,6}")
_JOB = re.compile(r"(?<![\w.])(\d{1,9}) +(\d{1,9}) +(\d{1,9}) +(\d{1,9}) +(\d{1,9})\s*$")
_TOTALS = re.compile(r"(?<![\w.])(\d{1,9}) +(\d{1,9}) +(\d{1,9})\s*$")
_ROW = re.compile(
    r"(?<![\w.])(\d{1,9}) +(\d{1,9}) +(\d{1,9}) +(\d{1,9}(?:-\d{1,9})?) +(\d{1,9}) +(\d{1,9}) +"
    r"(NOCOMM|INIT|RUNNING|FINALIZE|ABORT) +([A-Z]{2,12}(?:,[A-Z]{2,12}){0,3})\s*$"
)
_SECTION = re.compile(r"(?P<id>#\d{1,9}-\d{1,9}) \((?P<hash>[0-9a-f]{8,16})\) (?P<error>[A-Z]{4,12})\s*$")
_HEADING = re.compile(r"(?:^|\s)(?P<word>INCOMPLETE|DEAD|TIMEOUT)\s*$")
_MISSING = re.compile(r"Missing communicator data from (?P<n>-?\d{1,20}) (?P<what>job process|rank)")
_DEAD = re.compile(r"(?P<n>\d{1,9}) job process(?:es are| is) considered dead")
_TIMEOUTS = re.compile(r"Encountered (?P<n>\d{1,9}) communication timeouts?")
_PEER = re.compile(
    r"Process (?P<pid>\d{1,10}) on node (?P<node>\S{1,255}) managing GPUs? (?P<gpus>\d{1,3}(?:,\d{1,3}){0,63})"
)
_DIFFER = re.compile(r"Communicator ranks have different (?P<what>\w{1,40})(?: operation)?(?P<counts> counts)?")
_LAUNCHED = re.compile(
    r"(?P<n>\d{1,9}) ranks? (?:have|has) (?:launched up to operation (?P<count>\d{1,18})|not launched any)"
)
_STATUS = re.compile(r"(?P<n>\d{1,9}) ranks? (?:have|has) status (?P<status>[A-Z]{4,10})")
_REPORTED = re.compile(r"(?P<n>\d{1,9}) ranks? reported (?P<error>[A-Z][\w ]{3,60})")
_RANK = re.compile(
    r"Rank (?P<rank>-?\d{1,20})(?: (?:has launched up to operation (?P<count>\d{1,18})"
    r"|(?P<none>has not launched any operations)"
    r"|has status (?P<status>[A-Z]{4,10})"
    r"|reported (?P<error>[A-Z][\w ]{3,60}?)))? --(?: (?P<rest>.{0,400}))?"
)
_WHERE = re.compile(
    r"GPU (?P<gpu>\d{1,3})(?: \(NVML (?P<nvml>\d{1,3})\))? managed by process (?P<pid>\d{1,10})"
    r" on node (?P<node>\S{1,255})"
)
_PLAIN = (
    "Job summary",
    "Communicators...",
    "per node  per process",
    "Nodes  Processes",
    "(total)",
    "The outlier node",
    "running process",
    "Group     Comms",
    "# in group",
    "No communicator data collected",
    "Initialization error",
    "Asynchronous error",
    "could not find information on",
)
_WORDS = frozenset({"errors", "warnings", "job summary"})


class TextReader:
    """Reads lines; `snapshots` are the answers found, oldest first."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self._section: Section | None = None
        self._counts: Counts | None = None
        self._count: int | None = None
        self._heading: str | None = None
        self._summary = False
        self._members = 0

    def take(self, file: str, line: Line) -> bool:
        """True when the line belongs to an answer."""
        text = line.text.rstrip()
        if found := _VERSION.search(text):
            self._begin(file).version = found["version"]
            return True
        if not self.snapshots:
            if "Job summary" not in text and not _SECTION.search(text) and "Group     Comms" not in text:
                return False
            self._begin(file)
        elif "Job summary" in text and self.snapshots[-1].told:
            self._begin(file)
        known = self._line(line, text)
        if known and line.cut and not _whole(text):
            self.snapshots[-1].truncated += 1
        return known

    def _begin(self, file: str) -> Snapshot:
        if not self.snapshots or self.snapshots[-1].told or self.snapshots[-1].version:
            self.snapshots.append(Snapshot(file))
            self._section = self._counts = self._count = self._heading = None
        return self.snapshots[-1]

    def _line(self, line: Line, text: str) -> bool:
        now = self.snapshots[-1]
        if found := _SECTION.search(text):
            if len(now.sections) < MAX_SECTIONS:
                self._section = Section(found["id"], found["hash"], found["error"], line.number, text.strip()[:200])
                now.sections.append(self._section)
            self._counts = self._count = self._heading = None
            return True
        if found := _ROW.search(text):
            if len(now.rows) < MAX_SECTIONS:
                now.rows.append(_row(found))
            return True
        if found := _HEADING.search(text):
            self._heading, self._section = found["word"], None
            return True
        if now.job is None and (job := self._job(text)) is not None:
            now.job = job
            return True
        return self._detail(line, text) or self._plain(text)

    def _plain(self, text: str) -> bool:
        if "(total)    (total)" in text or "Processes     GPUs" in text:
            self._summary = True
        stripped = text.strip()
        if any(words in text for words in _PLAIN) or _RUNTIME.search(text) or stripped.lower() in _WORDS:
            return True
        return not stripped or not stripped.strip("=") or stripped.replace(" ", "").isdecimal()

    def _job(self, text: str) -> dict[str, int] | None:
        if found := _JOB.search(text):
            return {"nodes": int(found[1]), "processes": int(found[4]), "gpus": int(found[5])}
        if self._summary and (found := _TOTALS.search(text)):
            return {"nodes": int(found[1]), "processes": int(found[2]), "gpus": int(found[3])}
        return None

    def _detail(self, line: Line, text: str) -> bool:
        now, section = self.snapshots[-1], self._section
        if found := _MISSING.search(text):
            if found["what"] == "rank" and section is not None:
                section.missing = int(found["n"])
            else:
                now.missing_count = int(found["n"])
        elif found := _DEAD.search(text):
            now.dead_count = int(found["n"])
        elif found := _TIMEOUTS.search(text):
            now.timeouts = int(found["n"])
        elif found := _PEER.search(text):
            self._peer(line, found, line.cut and found.end() == len(text))
        elif section is None:
            return False
        elif found := _DIFFER.search(text):
            self._counts = Counts(found["what"]) if found["counts"] else None
            if self._counts is not None:
                section.counts.append(self._counts)
        elif found := _LAUNCHED.search(text):
            self._launched(section, int(found["n"]), int(found["count"] or 0))
        elif found := _STATUS.search(text):
            section.statuses[found["status"]] = int(found["n"])
        elif found := _REPORTED.search(text):
            section.errors[found["error"].strip()] = int(found["n"])
        elif found := _RANK.search(text):
            self._member(section, found, line.cut)
        else:
            return False
        return True

    def _launched(self, section: Section, ranks: int, count: int) -> None:
        if self._counts is None:
            self._counts = Counts("collective")
            section.counts.append(self._counts)
        self._count = count
        self._counts.ranks[count] = self._counts.ranks.get(count, 0) + ranks

    def _peer(self, line: Line, found: re.Match[str], cut: bool) -> None:
        now = self.snapshots[-1]
        gpus = tuple(int(number) for number in found["gpus"].split(","))
        peers = now.dead if self._heading == "DEAD" else now.missing
        if len(peers) < MAX_MEMBERS:
            sure = gpus[:-1] if cut and len(gpus) > 1 else gpus
            peers.append(Peer(int(found["pid"]), found["node"], sure, line.number, line.text.strip()))

    def _member(self, section: Section, found: re.Match[str], cut: bool) -> None:
        self._members += 1
        if self._members > MAX_MEMBERS:
            return
        rest = found["rest"] or ""
        where = _WHERE.search(rest)
        member = Member(int(found["rank"]))
        if where is not None:
            node = None if cut and where.end() == len(rest) else where["node"]  # its end may be missing
            nvml = int(where["nvml"]) if where["nvml"] else None
            member = replace(member, gpu=int(where["gpu"]), nvml=nvml, pid=int(where["pid"]), node=node)
        if found["count"] or found["none"]:
            self._launched(section, 1, int(found["count"] or 0))
        if found["status"]:
            section.statuses[found["status"]] = section.statuses.get(found["status"], 0) + 1
            member = replace(member, said=found["status"])
        if found["error"]:
            section.errors[found["error"]] = section.errors.get(found["error"], 0) + 1
            member = replace(member, said=found["error"])
        if self._counts is not None and section.counts:
            self._counts.members.append(replace(member, count=self._count))
        else:
            section.members.append(member)


def _row(found: re.Match[str]) -> Row:
    return Row(
        group=int(found[1]),
        comms=int(found[2]),
        nodes=int(found[3]),
        ranks_per_node=found[4],
        ranks=int(found[5]),
        ranks_in_group=int(found[6]),
        status=found[7],
        error=found[8],
    )


def _partial(node: str) -> bool:
    """Whether an address breaks off: fewer than four parts of an IPv4 address."""
    return node.replace(".", "").isdecimal() and node.count(".") < 3


def _whole(text: str) -> bool:
    """A last line without its end that still says all it can say."""
    where = _WHERE.search(text)
    if where is not None and where.end() == len(text):
        return not _partial(where["node"])
    return not text.strip("= ") or bool(_ROW.search(text) or _SECTION.search(text) or _LAUNCHED.search(text))
