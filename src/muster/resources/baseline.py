"""`Baseline`: the locked recipe that the cluster must match, and how far it does."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from muster.resources.base import API_VERSION, Condition, Model, ObjectMeta


class AssertionResult(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Assertion(Model, frozen=True, kw_only=True):
    name: str
    result: AssertionResult
    message: str = ""


class BaselineSpec(Model, frozen=True, kw_only=True):
    recipe: str
    """The lock file as text (canonical YAML); its digest is inside it."""
    node_selector: dict[str, str] = {}


class BaselineStatus(Model, frozen=True, kw_only=True):
    recipe_digest: str = ""
    checked_at: datetime | None = None
    assertions: tuple[Assertion, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Baseline(Model, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "Baseline"
    metadata: ObjectMeta
    spec: BaselineSpec
    status: BaselineStatus = BaselineStatus()
