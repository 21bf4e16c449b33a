"""String and number formats that a schema may ask for; a format that is not listed is not checked.

Source of the list: the OpenAPI formats that Kubernetes documents for custom resources.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date, datetime
from urllib.parse import urlsplit

_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_GO_DURATION = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[+-]?0", re.ASCII)
_LOOSE_DURATION = re.compile(r"\d+\s*(ns|nano|us|µs|micro|ms|milli|s|sec|m|min|h|hr|hour|d|day|w|wk|week)", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_EMAIL = re.compile(r"[^@\s<>]+@[^@\s<>]+\.?[^@\s<>]*")
_HOST_LABEL = re.compile(r"[a-zA-Z0-9\u0080-\uffff]([a-zA-Z0-9\u0080-\uffff-]{0,62}[a-zA-Z0-9\u0080-\uffff])?")
_SHORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LONG_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PATTERNS = {
    "mac": re.compile(r"([0-9A-Fa-f]{2}[:-]){5}([0-9A-Fa-f]{2}[:-]?){1,3}[0-9A-Fa-f]{0,2}"),
    "bsonobjectid": re.compile(r"[0-9a-fA-F]{24}"),
    "ssn": re.compile(r"\d{3}[- ]?\d{2}[- ]?\d{4}", re.ASCII),
    "hexcolor": re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": re.compile(r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)", re.ASCII),
}
NOT_IMPLEMENTED = ("isbn", "isbn10", "isbn13", "creditcard", "hostname")
"""Formats that a real API server checks and this one cannot; a definition that names one is refused."""


def is_date_time(value: str) -> bool:
    if not _DATE_TIME.fullmatch(value):
        return False
    try:
        # Year 0 is one to Kubernetes (a leap year as 2000 is), and none to Python.
        datetime.fromisoformat(value[:19].upper().replace("0000-", "2000-", 1))
    except ValueError:
        return False
    return True


def is_date(value: str) -> bool:
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return len(value) == 10


def _is_base64(value: str) -> bool:
    try:
        return bool(value) and bool(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return False


def _is_duration(value: str) -> bool:
    return _GO_DURATION.fullmatch(value) is not None or _LOOSE_DURATION.search(value.lower()) is not None


def _is_ip(version: int) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            return ipaddress.ip_address(value).version == version
        except ValueError:
            return False

    return check


def _is_cidr(value: str) -> bool:
    address, slash, _ = value.partition("/")
    try:
        ipaddress.ip_interface(value)
    except ValueError:
        return False
    return bool(slash and address)


def _is_uri(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return bool(re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*", parts.scheme)) or value.startswith("/")


def _is_hostname(value: str) -> bool:
    labels = value.removesuffix(".").split(".")
    return (
        0 < len(value) <= 255
        and all(_HOST_LABEL.fullmatch(label) for label in labels)
        and (len(labels) == 1 or (len(labels[-1]) >= 2 and not labels[-1].isdigit()))
    )


def _is_uuid(version: str = "") -> Callable[[str], bool]:
    def check(value: str) -> bool:
        plain = value.replace("-", "")
        return _UUID.fullmatch(value) is not None and (not version or plain[12] == version)

    return check


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": is_date_time,
    "datetime": is_date_time,
    "date": is_date,
    "byte": _is_base64,
    "duration": _is_duration,
    "email": lambda value: _EMAIL.fullmatch(value) is not None,
    "ipv4": _is_ip(4),
    "ipv6": _is_ip(6),
    "cidr": _is_cidr,
    "uri": _is_uri,
    "hostname": _is_hostname,
    "uuid": _is_uuid(),
    "uuid3": _is_uuid("3"),
    "uuid4": _is_uuid("4"),
    "uuid5": _is_uuid("5"),
    "k8s-short-name": lambda value: _SHORT_NAME.fullmatch(value) is not None,
    "k8s-long-name": lambda value: len(value) <= 253 and _LONG_NAME.fullmatch(value) is not None,
}


def fits(value: str, name: str) -> bool:
    """Whether `value` is of format `name`."""
    if name in _PATTERNS:
        return _PATTERNS[name].fullmatch(value) is not None
    check = _FORMATS.get(name)
    return check is None or check(value)


_LARGEST_FLOAT = 3.4028234663852886e38
"""Largest number of 32 bits (IEEE 754)."""
_BITS = {"int32": 31, "int64": 63}


def number_fault(value: float, type_: str, name: str) -> str:
    """Why a number is not of an `integer` or `number` of format `name`; empty when it is."""
    if type_ == "integer":
        bits = _BITS.get(name, 63)
        if value != int(value) or not -(2**bits) <= value < 2**bits:
            return f"integer with format {name}" if name in _BITS else "integer (default format)"
    elif type_ == "number" and name == "float":
        return "number with format float" if abs(value) > _LARGEST_FLOAT else ""
    return ""
