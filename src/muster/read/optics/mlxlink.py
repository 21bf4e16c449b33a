"""`mlxlink` (and `mstlink`), as text and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from muster.read.fabric_ports.lines import Line, decimal, integer, key
from muster.read.optics.module import Link, Measured

_TITLE = re.compile(
    r"(?:Operational Info|Module Info|Troubleshooting Info|Supported Info|Tool Information"
    r"|Physical Counters and BER Info|EYE Opening Info.{0,20}|FEC Capability Info|PCIe Operational.{0,20}"
    r"|Serdes Tuning.{0,30}|Histogram of FEC Errors|Device Info|BER Monitor Info|External PHY Info)\s{0,4}$"
)
_FIELD = re.compile(r"\s{0,8}([A-Za-z][^:]{1,60}?)\s{0,60}:(?:\s{1,8}(.{0,600})|\s{0,8})$")
_COMMAND = re.compile(r"(?:sudo )?(?:/\S{1,60}/)?(?:mlx|mst)link\b.{0,60}? -d (\S{1,64})")
_RANGE = re.compile(r"\[\s{0,4}(-?[\d.]{1,12}|N/A)\s{0,4}\.\.\s{0,4}(-?[\d.]{1,12}|N/A)\s{0,4}\]")
_UNIT = re.compile(r"\[([A-Za-z]{1,8})\]")
_MEASURED = {
    "temperature_c": ("temperature", "C"),
    "voltage_mv": ("voltage", "mV"),
    "bias_current_ma": ("bias_current", "mA"),
    "rx_power_current_dbm": ("rx_power", "dBm"),
    "rx_power_current": ("rx_power", "dBm"),
    "tx_power_current_dbm": ("tx_power", "dBm"),
    "tx_power_current": ("tx_power", "dBm"),
    "snr_media_lanes_db": ("snr_media", "dB"),
    "snr_host_lanes_db": ("snr_host", "dB"),
}
_FLAGS = (
    "tx_fault",
    "tx_los",
    "rx_los",
    "tx_cdr_lol",
    "rx_cdr_lol",
    "tx_adaptive_eq_fault",
    "module_fw_fault",
    "datapath_fw_fault",
)
_NUMBERS = {
    "time_since_last_clear_min": "minutes_since_clear",
    "symbol_errors": "symbol_errors",
    "symbol_ber": "symbol_ber",
    "effective_physical_errors": "effective_physical_errors",
    "effective_physical_ber": "effective_physical_ber",
    "raw_physical_ber": "raw_physical_ber",
    "link_down_counter": "link_down_counter",
    "link_error_recovery_counter": "link_error_recovery_counter",
    "status_opcode": "status_opcode",
}
_MAX_LINKS = 4096


def parse(lines: Sequence[Line], file: str) -> list[Link]:
    """All links of the text. A second `Operational Info` begins the next one."""
    found: list[Link] = []
    device: str | None = None
    current: Link | None = None
    for line in lines:
        if line.command:
            match = _COMMAND.search(line.command)
            device, current = (match[1] if match else None), None
        elif title := _TITLE.match(line.text.strip()):
            if current is None or (title[0].startswith("Operational") and current.text) or current.host != line.host:
                current = Link("mlxlink", file, line.number, device, line.host)
                if len(found) < _MAX_LINKS:
                    found.append(current)
        elif current is not None and (match := _FIELD.match(line.text)):
            put(current, match[1], (match[2] or "").strip(), line.number)
    return [link for link in found if link.text or link.measured or link.flags]


def parse_json(text: str, file: str) -> list[Link]:
    """The document of `mlxlink --json`, or of several runs one after the other. Raises ValueError."""
    found: list[Link] = []
    for document in _documents(text):
        link = Link("mlxlink", file, 1)
        for name, value in _fields(document):
            put(link, name, value, 1)
        if link.text or link.measured or link.flags:
            found.append(link)
    if not found:
        raise ValueError("no link in it")
    return found


def _documents(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    at = text.find("{")
    while 0 <= at < len(text):
        document, end = decoder.raw_decode(text, at)
        yield document
        at = text.find("{", end)


def _fields(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """All leaves of the document with their names; lists as the text prints them."""
    if not isinstance(value, dict) or depth > 6:
        return
    for name, item in value.items():
        if isinstance(item, dict) and "values" in item:
            yield str(name), _joined(item)
        elif isinstance(item, dict):
            yield from _fields(item, depth + 1)
        elif isinstance(item, list):
            yield str(name), ",".join(str(part) for part in item[:64])
        else:
            yield str(name), str(item)


def _joined(item: dict[str, Any]) -> str:
    values = item["values"]
    text = ",".join(str(part) for part in values[:64]) if isinstance(values, list) else str(values)
    low = next((item[name] for name in ("min", "minimum", "low") if name in item), None)
    high = next((item[name] for name in ("max", "maximum", "high") if name in item), None)
    return f"{text} [{low}..{high}]" if low is not None and high is not None else text


def put(link: Link, name: str, value: str, line: int) -> None:
    """One field of the tool into the link."""
    folded = key(name.replace("[per lane]", "").replace("(Ext.)", ""))
    link.quotes[line] = f"{name.strip()}: {value}"[:300]
    if folded in _MEASURED:
        kind, unit = _MEASURED[folded]
        limits = _RANGE.search(value)
        unit = told[1] if (told := _UNIT.search(name)) else unit
        link.measured[kind] = Measured(
            tuple(_number(part) for part in value.split("[")[0].split(",")[:64]),
            unit,
            line,
            _number(limits[1]) if limits else None,
            _number(limits[2]) if limits else None,
        )
        link.lines[kind] = line
    elif folded in _FLAGS:
        link.flags[folded] = tuple(_flag(part) for part in value.split(",")[:64])
        link.lines[folded] = line
    elif folded in _NUMBERS:
        number = _number(value)
        if number is not None:
            link.numbers[_NUMBERS[folded]] = number
            link.lines[_NUMBERS[folded]] = line
    elif folded == "raw_physical_errors_per_lane":
        counts = [integer(part) for part in value.split(",")[:64]]
        link.raw_errors = tuple(count for count in counts if count is not None)
        link.lines["raw_errors"] = line
    elif folded == "raw_physical_ber_per_lane":
        rates = [_number(part) for part in value.split(",")[:64]]
        link.raw_ber_lanes = tuple(rate for rate in rates if rate is not None)
    elif value and value != "N/A":
        link.text.setdefault(folded, value[:300])
        link.lines.setdefault(folded, line)


def _number(text: str) -> float | None:
    text = text.strip()
    return None if text in ("", "N/A", "-") else decimal(text)


def _flag(text: str) -> int | None:
    return {"0": 0, "1": 1}.get(text.strip())
