"""A stand-in for NVIDIA's library, compiled from our own source. NVML's real binding loads it like the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.inventory import nvml

SOURCE = Path(__file__).with_name("nvml_standin.c")
ABSENT = "no C compiler: "
Ask = Callable[..., nvml.Answer]


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the stand-in as `libnvidia-ml.so.1`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip(f"{ABSENT}install gcc to run the tests of NVML")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1", "-o", str(library), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def ask(nvml_library: Path, tmp_path: Path) -> Ask:
    """Asks the stand-in, which answers as the given scenario says."""

    def ask_scenario(scenario: str, deadline_s: float = 60.0) -> nvml.Answer:
        file = tmp_path / "scenario"
        file.write_text(scenario)
        environment = {**os.environ, "LD_LIBRARY_PATH": str(nvml_library), "NVML_SCENARIO": str(file)}
        return nvml.ask(deadline_s=deadline_s, environment=environment)

    return ask_scenario


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A loud line when the tests of NVML could not run."""
    skipped = [r for r in terminalreporter.stats.get("skipped", ()) if ABSENT in str(r.longrepr)]
    if skipped:
        terminalreporter.write_line(f"NOT RUN over the stand-in of NVML: {len(skipped)} tests.", yellow=True)
