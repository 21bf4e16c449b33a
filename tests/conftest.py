"""Settings for all tests: no deadline for property tests (machines are noisy), the same examples every time."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["tests.controlplane.plugin", "tests.programs.plugin"]

settings.register_profile("muster", deadline=None, derandomize=True, print_blob=True, database=None)
settings.load_profile("muster")
