"""The Python that has PyTorch: tests of real collectives run their programs with it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

VARIABLE = "MUSTER_TORCH_PYTHON"


@cache
def torch_python() -> Path:
    """An interpreter with PyTorch: this one, or the one that MUSTER_TORCH_PYTHON names.

    Raises RuntimeError where there is none, so that a test that needs it fails and is never left out silently.
    """
    if importlib.util.find_spec("torch") is not None:
        return Path(sys.executable)
    named = os.environ.get(VARIABLE, "")
    if not named:
        raise RuntimeError(
            f"These tests need PyTorch: install the extra 'workloads', or let {VARIABLE} name a Python that has it."
        )
    found = subprocess.run([named, "-c", "import torch"], capture_output=True, text=True, timeout=120)
    if found.returncode:
        raise RuntimeError(f"{VARIABLE} is {named}, which cannot import PyTorch: {found.stderr[-300:]}")
    return Path(named)
