"""The process that samples NVML for the agent. It is started for each look, by its path, with `python -I -S`.

It uses the standard library alone (about 10 MiB; NVIDIA's own Python binding takes 28) and holds no GPU between
looks, so that a GPU can be reset and the driver be unloaded. One line of JSON for each GPU goes to standard output as
soon as the GPU is read. The call that is being made stands at the begin of the file behind standard error: whoever
ends this process because it hangs knows where. Names, numbers and layouts are those of the NVML API.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from ctypes import Structure, byref, c_char, c_double, c_int, c_longlong, c_ubyte, c_uint, c_ulonglong

TYPE_CHECKING = False
"""As in `typing`, whose import would cost a megabyte and a third of the start."""
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Question = tuple[str, Callable[[], dict[str, Any]]]

LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED = 12, 9
NOT_SUPPORTED, INVALID_ARGUMENT, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH = 3, 2, 13, 25
LOST, RESET_REQUIRED, NOT_FOUND, CORRUPTED_INFOROM = 15, 16, 28, 14
NO_SUCH_THING = (NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH)
MAX_GPUS, MAX_LINKS = 64, 18
ANNOUNCED = 80
CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0
SENSOR_GPU, THRESHOLD_SLOWDOWN = 0, 1
INIT_NO_GPUS = 1
"""A machine whose GPUs are all gone is no error of the library."""
FIELD_RECOVERY_ACTION = 230
FIELD_LINK_REPLAY, FIELD_LINK_RECOVERY, FIELD_LINK_CRC = 161, 162, 163
FIELD_LINK_RECOVERIES_5, FIELD_EFFECTIVE_ERRORS, FIELD_EFFECTIVE_BER = 215, 219, 220
LINK_FIELDS = {
    FIELD_LINK_CRC: "crc",
    FIELD_LINK_REPLAY: "replay",
    FIELD_LINK_RECOVERY: "recovery",
    FIELD_LINK_RECOVERIES_5: "recovery",
    FIELD_EFFECTIVE_ERRORS: "effective_errors",
    FIELD_EFFECTIVE_BER: "effective_ber",
}
OLD_COUNTERS = {"replay": (0,), "recovery": (1,), "crc": (2, 3)}
"""Numbers of nvmlDeviceGetNvLinkErrorCounter, for GPUs that do not know the fields above."""


class Pci(Structure):
    _fields_ = [
        ("legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pci_device_id", c_uint),
        ("pci_subsystem_id", c_uint),
        ("bus_id", c_char * 32),
    ]


class Utilization(Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class Margin(Structure):
    _fields_ = [("version", c_uint), ("margin", c_int)]


class Fabric(Structure):
    _fields_ = [
        ("version", c_uint),
        ("cluster", c_ubyte * 16),
        ("status", c_uint),
        ("clique", c_uint),
        ("state", c_ubyte),
        ("health", c_uint),
    ]


class Sram(Structure):
    _fields_ = [
        ("version", c_uint),
        ("aggregate_parity", c_ulonglong),
        ("aggregate_secded", c_ulonglong),
        ("aggregate_corrected", c_ulonglong),
        ("volatile_parity", c_ulonglong),
        ("volatile_secded", c_ulonglong),
        ("volatile_corrected", c_ulonglong),
        ("buckets", c_ulonglong * 5),
        ("threshold_exceeded", c_uint),
    ]


class Value(ctypes.Union):
    _fields_ = [("double", c_double), ("uint", c_uint), ("ull", c_ulonglong), ("sll", c_longlong), ("int", c_int)]


class Field(Structure):
    _fields_ = [
        ("id", c_uint),
        ("scope", c_uint),
        ("timestamp", c_longlong),
        ("latency_us", c_longlong),
        ("kind", c_uint),
        ("result", c_uint),
        ("value", Value),
    ]


KINDS = ("double", "uint", "ull", "ull", "sll", "int")
"""Which part of a value holds it, by its kind."""


class FailedError(Exception):
    """A call that NVML did not answer as asked."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class Library:
    """NVML, each call announced before it is made."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Load the first of `paths` that can be loaded. Raises OSError when there is none."""
        for path in paths:
            with contextlib.suppress(OSError):
                self._library = ctypes.CDLL(path)
                return
        raise OSError("no library")

    def call(self, name: str, *arguments: Any) -> None:
        """Call `name`. Raises FailedError when it does not answer with success or does not exist."""
        try:
            function = self._library[name]
        except AttributeError:
            raise FailedError(FUNCTION_NOT_FOUND, name) from None
        announce(name)
        code = function(*arguments)
        if code:
            raise FailedError(code, f"{self._words(code)} ({code})")

    def _words(self, code: int) -> str:
        function = self._library["nvmlErrorString"]
        function.restype = ctypes.c_char_p
        return (function(code) or b"unknown error").decode("ascii", "replace")

    def number(self, name: str, handle: Any, *more: Any, kind: Any = c_uint) -> Any:
        """The one number that `name` answers."""
        found = kind()
        self.call(name, handle, *more, byref(found))
        return found.value


def announce(name: str) -> None:
    """Say which call is made next."""
    with contextlib.suppress(OSError):  # no file behind it: nobody wants to know
        os.pwrite(2, name.encode().ljust(ANNOUNCED), 0)


def tell(values: dict[str, Any]) -> None:
    """One line of JSON, at once."""
    os.write(1, (as_json(values) + "\n").encode())


def as_json(value: Any) -> str:
    """JSON of plain values; text is cut to what needs no escapes."""
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return '"' + "".join(c for c in value[:200] if " " <= c <= "~" and c not in '"\\') + '"'
    if isinstance(value, dict):
        return "{" + ",".join(f'"{name}":{as_json(inner)}' for name, inner in value.items()) + "}"
    return "[" + ",".join(as_json(inner) for inner in value) + "]"


class Gpu:
    """Reads one GPU: what fails is noted, what the model does not have is left out."""

    def __init__(self, library: Library, index: int) -> None:
        self.library = library
        self.handle = ctypes.c_void_p()
        self.told: dict[str, Any] = {"index": index}
        self.errors: dict[str, str] = {}

    def read(self, deep: bool) -> dict[str, Any]:
        """Everything of this GPU as a mapping."""
        try:
            self.library.call("nvmlDeviceGetHandleByIndex_v2", c_uint(self.told["index"]), byref(self.handle))
            self._identity()
        except FailedError as error:
            self._note("handle", error)
            return self.told
        for name, question in self._questions(deep):
            try:
                self.told.update(question())
            except FailedError as error:
                self._note(name, error)
                if self.told.get("lost") or self.told.get("reset_required"):
                    break  # each further call may take seconds
        if self.errors:
            self.told["errors"] = self.errors
        return self.told

    def _note(self, name: str, error: FailedError) -> None:
        if error.code in (LOST, NOT_FOUND):
            self.told["lost"] = True
        elif error.code == RESET_REQUIRED:
            self.told["reset_required"] = True
        elif error.code not in NO_SUCH_THING:
            self.errors[name] = str(error)
            self.told["errors"] = self.errors

    def _identity(self) -> None:
        pci = Pci()
        self.library.call("nvmlDeviceGetPciInfo_v3", self.handle, byref(pci))
        self.told["pci"] = address(pci.bus_id.decode("ascii", "replace"))
        self.told["uuid"] = self._text("nvmlDeviceGetUUID")
        self.told["product"] = self._text("nvmlDeviceGetName")

    def _text(self, name: str) -> str:
        buffer = ctypes.create_string_buffer(96)
        self.library.call(name, self.handle, buffer, c_uint(96))
        return buffer.value.decode("ascii", "replace")

    def _number(
        self, key: str, name: str, *more: Any, kind: Any = c_uint, read: Callable[[Any], Any] = int
    ) -> Question:
        return key, lambda: {key: read(self.library.number(name, self.handle, *more, kind=kind))}

    def _questions(self, deep: bool) -> list[Question]:
        number = self._number
        ecc = "nvmlDeviceGetTotalEccErrors"
        return [
            number("ecc_uncorrected", ecc, c_uint(UNCORRECTED), c_uint(VOLATILE), kind=c_ulonglong),
            number("ecc_corrected", ecc, c_uint(CORRECTED), c_uint(VOLATILE), kind=c_ulonglong),
            ("sram", self._sram),
            ("remap", self._remap),
            number("pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus", read=bool),
            ("throttle", self._throttle),
            number("temperature_c", "nvmlDeviceGetTemperature", c_uint(SENSOR_GPU)),
            ("margin_c", self._margin),
            number("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
            number("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth"),
            number("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
            number("pcie_max_generation", "nvmlDeviceGetMaxPcieLinkGeneration"),
            number("pcie_replays", "nvmlDeviceGetPcieReplayCounter"),
            ("busy_percent", self._busy),
            ("recovery_action", self._recovery_action),
            ("fabric", self._fabric),
            number("persistence", "nvmlDeviceGetPersistenceMode", read=bool),
            ("ecc_mode", self._ecc_mode),
            *([("inforom", self._inforom)] if deep else []),
            ("links", self._links),
        ]

    def _sram(self) -> dict[str, Any]:
        found = Sram()
        found.version = ctypes.sizeof(Sram) | 1 << 24
        self.library.call("nvmlDeviceGetSramEccErrorStatus", self.handle, byref(found))
        return {
            "sram_uncorrected": found.volatile_parity + found.volatile_secded,
            "sram_threshold": bool(found.threshold_exceeded),
        }

    def _remap(self) -> dict[str, Any]:
        corrected, uncorrected, pending, failed = c_uint(), c_uint(), c_uint(), c_uint()
        rows = (byref(corrected), byref(uncorrected), byref(pending), byref(failed))
        self.library.call("nvmlDeviceGetRemappedRows", self.handle, *rows)
        return {"remap_pending": bool(pending.value), "remap_failed": bool(failed.value)}

    def _throttle(self) -> dict[str, Any]:
        name = "nvmlDeviceGetCurrentClocksEventReasons"
        try:
            return {"throttle": self.library.number(name, self.handle, kind=c_ulonglong)}
        except FailedError as error:
            if error.code != FUNCTION_NOT_FOUND:
                raise
        name = "nvmlDeviceGetCurrentClocksThrottleReasons"
        return {"throttle": self.library.number(name, self.handle, kind=c_ulonglong)}

    def _margin(self) -> dict[str, Any]:
        """Degrees to the slowdown, from the GPU itself, or else from its threshold."""
        found = Margin()
        found.version = ctypes.sizeof(Margin) | 1 << 24
        try:
            self.library.call("nvmlDeviceGetMarginTemperature", self.handle, byref(found))
        except FailedError as error:
            if error.code not in NO_SUCH_THING:
                raise
            name = "nvmlDeviceGetTemperatureThreshold"
            return {"slowdown_c": self.library.number(name, self.handle, c_uint(THRESHOLD_SLOWDOWN))}
        return {"margin_c": found.margin}

    def _busy(self) -> dict[str, Any]:
        found = Utilization()
        self.library.call("nvmlDeviceGetUtilizationRates", self.handle, byref(found))
        return {"busy_percent": found.gpu}

    def _fields(self, wanted: Sequence[tuple[int, int]]) -> list[Any]:
        fields = (Field * len(wanted))()
        for field, (number, scope) in zip(fields, wanted, strict=True):
            field.id, field.scope = number, scope
        self.library.call("nvmlDeviceGetFieldValues", self.handle, c_int(len(wanted)), byref(fields))
        return [None if f.result or f.kind >= len(KINDS) else getattr(f.value, KINDS[f.kind]) for f in fields]

    def _recovery_action(self) -> dict[str, Any]:
        (action,) = self._fields([(FIELD_RECOVERY_ACTION, 0)])
        return {} if action is None else {"recovery_action": action}

    def _fabric(self) -> dict[str, Any]:
        found = Fabric()
        found.version = ctypes.sizeof(Fabric) | 2 << 24
        self.library.call("nvmlDeviceGetGpuFabricInfoV", self.handle, byref(found))
        return {"fabric_state": found.state, "fabric_status": found.status, "fabric_health": found.health}

    def _ecc_mode(self) -> dict[str, Any]:
        now, pending = c_uint(), c_uint()
        self.library.call("nvmlDeviceGetEccMode", self.handle, byref(now), byref(pending))
        return {"ecc_mode": bool(now.value), "ecc_pending": bool(pending.value)}

    def _inforom(self) -> dict[str, Any]:
        """Reads the whole flash and compares check sums, so only now and then."""
        try:
            self.library.call("nvmlDeviceValidateInforom", self.handle)
        except FailedError as error:
            if error.code != CORRUPTED_INFOROM:
                raise
            return {"inforom_corrupted": True}
        return {"inforom_corrupted": False}

    def _links(self) -> dict[str, Any]:
        links: list[dict[str, Any]] = []
        for link in range(MAX_LINKS):
            try:
                up = self.library.number("nvmlDeviceGetNvLinkState", self.handle, c_uint(link))
            except FailedError as error:
                if error.code in (INVALID_ARGUMENT, *NO_SUCH_THING):
                    continue  # the GPU has no link of this number
                raise
            links.append({"link": link, "up": bool(up)})
        self._link_counters([link for link in links if link["up"]])
        return {"links": links} if links else {}

    def _link_counters(self, links: list[dict[str, Any]]) -> None:
        wanted = [(field, link["link"]) for link in links for field in LINK_FIELDS]
        try:
            values = self._fields(wanted) if wanted else []
        except FailedError as error:
            if error.code not in NO_SUCH_THING:
                raise
            values = [None] * len(wanted)
        by_number = {link["link"]: link for link in links}
        for (field, number), value in zip(wanted, values, strict=True):
            if value is not None:
                name = LINK_FIELDS[field]
                by_number[number][name] = error_rate(value) if field == FIELD_EFFECTIVE_BER else value
        for link in links:
            if "crc" not in link and "effective_errors" not in link:
                self._old_counters(link)

    def _old_counters(self, link: dict[str, Any]) -> None:
        for name, numbers in OLD_COUNTERS.items():
            try:
                link[name] = sum(
                    self.library.number(
                        "nvmlDeviceGetNvLinkErrorCounter",
                        self.handle,
                        c_uint(link["link"]),
                        c_uint(number),
                        kind=c_ulonglong,
                    )
                    for number in numbers
                )
            except FailedError as error:
                if error.code in (INVALID_ARGUMENT, *NO_SUCH_THING):
                    return
                raise


def error_rate(encoded: int) -> float:
    """A bit error rate as NVML packs it: mantissa in bits 8 to 11, negative exponent of ten in bits 0 to 7."""
    mantissa, exponent = encoded >> 8 & 0xF, encoded & 0xFF
    return mantissa * 10.0**-exponent if mantissa else 0.0


def address(bus_id: str) -> str:
    """`00000000:1A:00.0` -> `0000:1a:00.0`."""
    domain, _, rest = bus_id.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def main(deep: bool, paths: Sequence[str]) -> None:
    """Tell every GPU, then the end."""
    announce("start")
    try:
        library = Library(paths)
    except OSError:
        tell({"failure": "NVIDIA's library libnvidia-ml.so.1 cannot be found; set gpu.library", "absent": True})
        return
    try:
        library.call("nvmlInitWithFlags", c_uint(INIT_NO_GPUS))
        count = c_uint()
        library.call("nvmlDeviceGetCount_v2", byref(count))
    except FailedError as error:
        tell({"failure": str(error), "absent": error.code in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND)})
        return
    for index in range(min(count.value, MAX_GPUS)):
        tell(Gpu(library, index).read(deep))
    with contextlib.suppress(FailedError):  # everything is told already
        library.call("nvmlShutdown")
    tell({"complete": True})


if __name__ == "__main__":
    main(sys.argv[1] == "deep", sys.argv[2:])
