"""A control plane for each story: what a story installs is cluster-wide, and its nodes must be the only ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.binaries import BinariesMissingError, find
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.plugin import ABSENT


@pytest.fixture
def story_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A real control plane of our own with all its controllers."""
    try:
        binaries = find()
    except BinariesMissingError as error:
        pytest.skip(f"{ABSENT}{error}")
    plane = ControlPlane(binaries, tmp_path / "control-plane")
    if not plane.controllers:
        pytest.skip(f"{ABSENT}{binaries.source} has no kube-controller-manager")
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
