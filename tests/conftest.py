"""Settings for all tests: no deadline for property tests (machines are noisy), the same examples every time."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading

from hypothesis import settings

pytest_plugins = ["tests.controlplane.plugin", "tests.programs.plugin", "tests.history.plugin"]

settings.register_profile("muster", deadline=None, derandomize=True, print_blob=True, database=None)
settings.load_profile("muster")

# Where Python may not keep what it compiled, every worker and every program of a test compiles all of Muster anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A run in the background of a shell inherits that Ctrl-C is ignored, and would hand it down to the programs.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
