"""To be written."""

from __future__ import annotations

from muster.configure.plan import Plan


def render(plan: Plan) -> dict[str, str]:
    """Files by path inside the bundle."""
    raise NotImplementedError
