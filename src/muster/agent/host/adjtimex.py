"""Asks the kernel about its clock with adjtimex(2), which changes nothing with `modes` 0 and needs no privilege."""

from __future__ import annotations

import ctypes
import os
import time

from muster.agent.host.clock_state import ClockReading

_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000
_TIME_ERROR = 5


class _Timex(ctypes.Structure):
    """`struct timex` of Linux on 64-bit machines."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time_s", ctypes.c_long),
        ("time_fraction", ctypes.c_long),
        ("tick", ctypes.c_long),
        ("ppsfreq", ctypes.c_long),
        ("jitter", ctypes.c_long),
        ("shift", ctypes.c_int),
        ("stabil", ctypes.c_long),
        ("jitcnt", ctypes.c_long),
        ("calcnt", ctypes.c_long),
        ("errcnt", ctypes.c_long),
        ("stbcnt", ctypes.c_long),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    )


def read_clock() -> ClockReading:
    """The state of the machine's clock now. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    timex = _Timex()
    state = libc.adjtimex(ctypes.byref(timex))
    if state == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"adjtimex: {os.strerror(number)}")
    unit = 1e9 if timex.status & _STA_NANO else 1e6
    # TIME_ERROR also tells of a lost pulse of a hardware clock; only this bit is about synchronisation.
    synchronised = not timex.status & _STA_UNSYNC and not (state == _TIME_ERROR and timex.maxerror >= 16_000_000)
    return ClockReading(
        synchronised=synchronised,
        offset_s=timex.offset / unit,
        max_error_s=timex.maxerror / 1e6,
        ahead_s=time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME),
    )
