"""How sure this package is of a sample, and which tools wrote a text."""

from __future__ import annotations

import re

from muster.read.fabric_ports.lines import lines_of
from muster.read.source import text_lines

IB, ETHERNET, OPTICS = "ib", "ethernet", "optics"
_HEX = r"0x[0-9a-fA-F]{4,16}"
_SIGNS: tuple[tuple[str, str, str, str], ...] = (
    (IB, "ib state", "CA", r"^.{0,80}?CA:? '[^']{1,64}'\s*$"),
    (IB, "ib state", " ==> ", r" port {1,8}\d{1,3} {1,16}==> {1,16}\S{1,64} {1,16}\((?:Up|Down)\)"),
    (IB, "ib state", "nfiniband device", r"[Ii]nfiniband device '[^']{1,64}' port \d"),
    (IB, "ib state", "hca_id", r"hca_id:\s{1,16}\S"),
    (
        IB,
        "ib state",
        " state ",
        r"^.{0,80}?(?:\d{1,4}/\d{1,4}: |link )[A-Za-z0-9_.-]{1,64}/\d{1,3} (?:.{0,120} )?state [A-Z]",
    ),
    (IB, "ib state", "Port info", r"# Port info: "),
    (IB, "ib counters", "ounters: ", r"# Port (?:extended )?counters: "),
    (IB, "ib counters", "Errors for", rf"Errors for (?:{_HEX} )?\""),
    (IB, "ib counters", " port ", rf"GUID {_HEX} port (?:\d{{1,3}}|ALL): ?\["),
    (IB, "ib counters", "GUID=", r"Port=\d{1,3} Lid=\S{1,12} GUID=0x"),
    (IB, "ib counters", "link ", r"^.{0,80}?link [A-Za-z0-9_.-]{1,64}/\d{1,3} [a-z][a-z0-9_]{2,60} \d{1,20}(?: |$)"),
    (IB, "ib lists", "==(", r"\d\[ {0,4}\d{0,3}\] ==\("),
    (IB, "ib lists", '", ', rf"{_HEX}, {{0,4}}\d{{1,3}}, {{0,4}}\"[^\"]{{0,100}}\", {{0,4}}{_HEX},"),
    (IB, "ib lists", "-I- Stage", r"-I- Stage {1,40}Warnings"),
    (
        IB,
        "ib lists",
        "ort",
        r"^.{0,300}?(?i:node_?guid|port_?guid)\"?[,;\t].{0,300}(?i:port_?num(?:ber)?|port)\"?[,;\t]",
    ),
    (
        ETHERNET,
        "sysfs",
        "/hw_counters/",
        r"/infiniband/[^/\s]{1,64}/ports/\d{1,3}/hw_counters/(?:np_|rp_|roce_)\w{1,40}[:= ]",
    ),
    (IB, "sysfs", "/infiniband/", r"/infiniband/[^/\s]{1,64}/(?:ports|tc)/\d{1,3}/"),
    (ETHERNET, "sysfs", "/sys/", r"/sys/(?:class|devices)/(?:\S{0,200}/)?net/[^/\s]{1,32}/[a-z]"),
    (ETHERNET, "eth ports", "Settings for", r"Settings for [A-Za-z0-9_.@-]{1,32}:"),
    (ETHERNET, "eth ports", "NIC statistics", r"NIC statistics:?\s*$"),
    (ETHERNET, "eth ports", "_prio", r"^\s{0,16}[rt]x_prio\d_(?:bytes|packets|pause): {1,4}\d"),
    (
        ETHERNET,
        "eth ports",
        "",
        r"^\s{0,16}(?:rx_discards_phy|rx_crc_errors_phy|link_down_events_phy|rx_pcs_symbol_err_phy|"
        r"[rt]x_global_pause|tx_pause_storm_\w{1,20}): {1,4}\d",
    ),
    (
        ETHERNET,
        "eth ports",
        " mtu ",
        r"^(?:.{0,80}? )?(?:\d{1,5}: )?[A-Za-z0-9_.@-]{1,40}: <[A-Z0-9_,-]{2,200}> mtu \d",
    ),
    (ETHERNET, "eth ports", "reporter ", r"^\s{0,8}reporter \w{1,40}\s*$"),
    (ETHERNET, "roce", "riorit", r"PFC configuration:|[Pp]riority trust state"),
    (ETHERNET, "roce", "INDEX", r"DEV\s{1,16}PORT\s{1,16}INDEX\s{1,16}GID"),
    (ETHERNET, "roce", "cma_roce", r"^[#$%> ]{0,4}cma_roce_(?:tos|mode)"),
    (
        OPTICS,
        "mlxlink",
        " Info",
        r"^.{0,80}?(?:Operational Info|Module Info|Physical Counters and BER Info|Troubleshooting Info)\s*$",
    ),
    (
        OPTICS,
        "mlxlink json",
        ' Info"',
        r"\"(?:Operational Info|Module Info|Physical Counters and BER Info)\"\s{0,8}:",
    ),
    (OPTICS, "module", "Identifier", r"^\s{0,8}Identifier\s{1,60}: 0x[0-9a-fA-F]{2} \("),
    (OPTICS, "module", "", r"^\s{0,8}(?:Module temperature|Laser (?:tx )?bias current|Laser output power)\b.{0,40}:"),
    (OPTICS, "module", "Temperature", r"^\s{0,8}Temperature: -?[\d.]{1,8} ?C\b"),
    (OPTICS, "link test", "#bytes", r"#bytes\s{1,20}#iterations\s{1,20}BW peak\["),
    (OPTICS, "firmware", "FW", r"FW \(Running\)|FW Version\(Running\)"),
)
_PATTERNS = tuple((kind, tool, word, re.compile(pattern, re.MULTILINE)) for kind, tool, word, pattern in _SIGNS)
_HEAD_CHARS = 256 * 1024
_PREFIXED_LINES = 100
"""Lines that are looked at once more without colours and prefixes."""


def score(sample: bytes) -> float:
    """1 for the output of a tool that this package reads."""
    lines = [line[:2000] for line in text_lines(sample, 2000)]
    if tools_of("\n".join(lines)):
        return 1.0
    return 1.0 if tools_of("\n".join(line.text for line in lines_of("\n".join(lines[:_PREFIXED_LINES])))) else 0.0


def tools_of(text: str) -> dict[str, str]:
    """The tools whose output is in the text, each with its kind; in the order of the table."""
    head = text[:_HEAD_CHARS]
    found: dict[str, str] = {}
    for kind, tool, word, pattern in _PATTERNS:
        if tool not in found and word in head and pattern.search(head):
            found[tool] = kind
    return found


def kind_of(tools: dict[str, str]) -> str:
    """The kind of a text: a link test or firmware list beside port states does not change it."""
    kinds = list(tools.values())
    return next((kind for kind in (ETHERNET, IB, OPTICS) if kind in kinds), OPTICS)
