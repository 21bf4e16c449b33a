"""`Baseline`: the locked recipe that the cluster must match, and how far it does."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from muster.resources.base import API_VERSION, Condition, Model, ObjectMeta

CHECKED = "Checked"
"""Condition: the cluster could be read and compared. False when the recipe cannot be used or the cluster not read."""
MATCHES = "Matches"
"""Condition: every assertion passed and nothing drifted. Unknown when an assertion could not be decided."""
MAX_LISTED = 200
"""At most so many assertions and so many drifts are listed; the counts are of all."""


class AssertionResult(StrEnum):
    """Unknown is never a pass."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Assertion(Model, frozen=True, kw_only=True):
    """One thing that must hold. `name` is stable: `component/Kind/namespace/name` or a constraint."""

    name: str
    result: AssertionResult
    message: str = ""


class DriftClass(StrEnum):
    """What kind of difference it is."""

    VERSION = "version"
    VALUES = "values"
    MISSING = "missing"
    """A component of the recipe is not installed, or an object of it is gone."""
    FOREIGN = "foreign"
    """Something is installed that the recipe does not have."""
    ASSERTION = "assertion"
    NODE_IDENTITY = "node-identity"
    NODE_STACK = "node-stack"
    NODE_CONFIG = "node-config"


class Drift(Model, frozen=True, kw_only=True):
    """One difference between what the recipe says and what is. Secret values are never shown."""

    drift_class: DriftClass
    component: str = ""
    node: str = ""
    path: str
    """Of the value, object or reading."""
    expected: str = ""
    found: str = ""
    remedy: str = ""


class BaselineSpec(Model, frozen=True, kw_only=True):
    recipe: str
    """The lock file as text (canonical YAML), with the choices of a bundle worked in; its digest is inside it."""
    node_selector: dict[str, str] = {}
    """Nodes that are compared; without it every node with GPUs."""
    confirmed: dict[str, str] = {}
    """Constraints that nothing in a cluster tells (`aks.gpu-pools.gpu-driver`) -> the value that you vouch for."""
    interval_s: float = 300.0
    """Seconds from one comparison to the next."""


class BaselineCounts(Model, frozen=True, kw_only=True):
    passed: int = 0
    failed: int = 0
    unknown: int = 0
    drifted: int = 0


class BaselineStatus(Model, frozen=True, kw_only=True):
    observed_generation: int = 0
    recipe_digest: str = ""
    checked_at: datetime | None = None
    result: AssertionResult | None = None
    """Passed: every assertion holds and nothing drifted."""
    counts: BaselineCounts | None = None
    assertions: tuple[Assertion, ...] = ()
    """Those that did not pass."""
    drifts: tuple[Drift, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Baseline(Model, frozen=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "Baseline"
    metadata: ObjectMeta
    spec: BaselineSpec
    status: BaselineStatus = BaselineStatus()
