"""`ethtool -m DEV`, and the short lists of cable tools that judge by themselves (`Temperature: 95.0 C ALARM`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from muster.read.fabric_ports.lines import Line, decimal, key
from muster.read.optics.module import Link, Measured

_COMMAND = re.compile(
    r"(?:sudo )?(?:\S{1,40}/)?ethtool (?:-m|--dump-module-eeprom|--module-info) ([A-Za-z0-9_.@-]{1,32})"
)
_FIELD = re.compile(r"\s{0,8}([A-Za-z][^:]{2,70}?)\s{0,40}:\s{1,8}(\S.{0,300})$")
_CHANNEL = re.compile(r"\s{0,2}\((?:Channel|Chan|Lane) ?(\d{1,2})\)", re.IGNORECASE)
_POWER = re.compile(r"(-?[\d.]{1,12}|-inf) dBm", re.IGNORECASE)
_LANES = re.compile(r"\[\s{0,4}((?:Yes|No|Off|On)(?:,\s{0,4}(?:Yes|No|Off|On)){0,15})\s{0,4}\]", re.IGNORECASE)
_NAMES = (
    ("module temperature", "temperature", "C"),
    ("module voltage", "voltage", "V"),
    ("laser tx bias current", "bias_current", "mA"),
    ("laser bias current", "bias_current", "mA"),
    ("transmit avg optical power", "tx_power", "dBm"),
    ("laser output power", "tx_power", "dBm"),
    ("rcvr signal avg optical power", "rx_power", "dBm"),
    ("receiver signal average optical power", "rx_power", "dBm"),
    ("laser rx power", "rx_power", "dBm"),
    ("laser tx power", "tx_power", "dBm"),
    ("temperature", "temperature", "C"),
    ("voltage", "voltage", "V"),
    ("tx bias", "bias_current", "mA"),
    ("rx power", "rx_power", "dBm"),
    ("tx power", "tx_power", "dBm"),
)
_FLAGS = (
    ("rx loss of signal", "rx_los"),
    ("tx loss of signal", "tx_los"),
    ("rx loss of lock", "rx_cdr_lol"),
    ("tx loss of lock", "tx_cdr_lol"),
    ("tx fault", "tx_fault"),
    ("tx adaptive eq fault", "tx_adaptive_eq_fault"),
)


def parse(lines: Sequence[Line], file: str) -> list[Link]:
    """All modules of the text: each command, and each `Identifier`, begins one."""
    reader = _Reader(file)
    for line in lines:
        reader.line(line)
    return [link for link in reader.found if link.text or link.measured or link.flags]


class _Reader:
    def __init__(self, file: str) -> None:
        self.found: list[Link] = []
        self._file = file
        self._device: str | None = None
        self._link: Link | None = None

    def line(self, line: Line) -> None:
        if line.command:
            match = _COMMAND.match(line.command)
            self._device, self._link = (match[1] if match else None), None
            return
        match = _FIELD.match(line.text)
        if match is None:
            return
        name, value = match[1].strip(), match[2].strip()
        if self._link is None or (name == "Identifier" and "identifier" in self._link.text):
            self._link = Link("ethtool -m", self._file, line.number, self._device, line.host)
            self.found.append(self._link)
        _put(self._link, name, value, line)


def _put(link: Link, name: str, value: str, line: Line) -> None:
    link.quotes[line.number] = line.text.strip()[:300]
    lowered = name.lower()
    flag = next((kind for start, kind in _FLAGS if lowered.startswith(start)), None)
    if flag is not None:
        _put_flag(link, flag, name, value, line.number)
        return
    entry = next(((kind, unit) for start, kind, unit in _NAMES if lowered.startswith(start)), None)
    if entry is None:
        if value.lower() not in ("n/a", "none"):
            link.text.setdefault(key(name), value[:300])
        return
    if "threshold" in lowered:
        _put_limit(link, entry[0], lowered, _value(entry[0], value))
    elif lowered.endswith(("alarm", "warning")) or "alarm (" in lowered or "warning (" in lowered:
        _put_alarm(link, entry[0], lowered, value, line.number)
    else:
        _put_value(link, entry, name, value, line.number)


def _put_value(link: Link, entry: tuple[str, str], name: str, value: str, line: int) -> None:
    kind, unit = entry
    number = _value(kind, value)
    before = link.measured.get(kind)
    channel = _CHANNEL.search(name)
    if kind == "voltage" and re.search(r"\bmV\b", value):
        unit = "mV"
    alarm = next((word for word in ("ALARM", "WARNING") if re.search(rf"\b{word}\b", value)), "")
    if before is not None and before.values and channel:
        link.measured[kind] = replace(before, values=(*before.values, number), alarm=before.alarm or alarm)
    elif before is not None and not before.values:
        link.measured[kind] = replace(before, values=(number,), line=line, unit=unit, alarm=before.alarm or alarm)
    elif before is None:
        link.measured[kind] = Measured((number,), unit, line, alarm=alarm)
    link.lines[kind] = line


def _put_limit(link: Link, kind: str, name: str, number: float | None) -> None:
    if "alarm" not in name:
        return
    before = link.measured.get(kind, Measured((), "", 0))
    if "high" in name:
        link.measured[kind] = replace(before, high=number)
    elif "low" in name:
        link.measured[kind] = replace(before, low=number)


def _put_alarm(link: Link, kind: str, name: str, value: str, line: int) -> None:
    if not value.lower().startswith(("on", "yes", "true")):
        return
    before = link.measured.get(kind, Measured((), "", line))
    word = "ALARM" if "alarm" in name else "WARNING"
    link.measured[kind] = replace(before, alarm="ALARM" if "ALARM" in (before.alarm, word) else word)


def _put_flag(link: Link, flag: str, name: str, value: str, line: int) -> None:
    lanes = _LANES.search(value)
    link.lines[flag] = line
    if lanes:
        words = [word.strip().lower() for word in lanes[1].split(",")]
        link.flags[flag] = tuple(int(word in ("yes", "on")) for word in words)
    elif _CHANNEL.search(name):
        link.flags[flag] = (*link.flags.get(flag, ()), int(value.lower().startswith(("yes", "on"))))
    elif value.lower() in ("none", "no", "off"):
        link.flags[flag] = (0,)
    elif value.lower() in ("yes", "on"):
        link.flags[flag] = (1,)


def _value(kind: str, text: str) -> float | None:
    if kind in ("rx_power", "tx_power"):
        match = _POWER.search(text)
        if match:
            return -40.0 if match[1].lower() == "-inf" else decimal(match[1])
        return None
    return decimal(text)
