"""To be written."""

from __future__ import annotations

from muster.configure.plan import Plan
from muster.configure.render.repository import Repository


def render(plan: Plan, repository: Repository) -> dict[str, str]:
    """Files by path inside the bundle."""
    raise NotImplementedError
