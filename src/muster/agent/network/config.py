"""What the network monitor watches, and from what on it speaks. The defaults fit an unconfigured HGX or DGX node."""

from __future__ import annotations

import re

from muster.resources.base import Model


class CounterLimit(Model, frozen=True, kw_only=True):
    """Another limit for a port counter of the table of thresholds: more than `limit` new counts within `window_s`.

    Between two looks that are further apart than the window, growth counts in proportion.
    """

    counter: str
    limit: int
    window_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.limit < 10**15 or not 1 <= self.window_s <= 86400:
            raise ValueError(f"limit of {self.counter} must not be negative, and its windowS be 1 to 86400")


class NetworkConfig(Model, frozen=True, kw_only=True):
    """`include` wins over every exclusion by kind; `exclude` wins over `include`. Patterns match whole names.

    Names are those of the RDMA device (`mlx5_0`) or, for an adapter without one, of the network device (`eth0`).
    """

    enabled: bool = True
    interval_s: float = 15.0
    deadline_s: float = 10.0
    include: str = ""
    exclude: str = ""
    fabric: str = ""
    """Devices of the compute fabric. Empty: RDMA devices of a kind that the node has for every other GPU at least."""
    expect_up: str = ""
    """Ports of these devices must be up although this boot never saw them up."""
    expected_rate_gbps: float | None = None
    """Rate of ports of the compute fabric; None: that of most peers of the same kind."""
    confirm_looks: int = 3
    """A port is down, or slow, only after so many looks in a row."""
    boot_grace_s: float = 300.0
    """For so long after a boot, ports that were not up yet are not spoken of, and no port that comes back with its
    driver."""
    flaps: int = 3
    """So many losses of the link within `flap_window_s` are flapping; fewer are told as information."""
    flap_window_s: float = 600.0
    clear_looks: int = 6
    """Counters must stay at half their limit or below for so many looks before their fault closes."""
    limits: tuple[CounterLimit, ...] = ()
    """Instead of the limits of the same counters in the table."""

    def __post_init__(self) -> None:
        for name in ("include", "exclude", "fabric", "expect_up"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise ValueError(f"{name} is no regular expression: {error}") from error
        if not 1 <= self.interval_s <= 86400 or not 0 < self.deadline_s <= 3600:
            raise ValueError("intervalS must be 1 to 86400 and deadlineS up to 3600")
        if min(self.confirm_looks, self.flaps, self.clear_looks) < 1 or self.flap_window_s <= 0:
            raise ValueError("confirmLooks, flaps, clearLooks and flapWindowS must be positive")
        if self.expected_rate_gbps is not None and self.expected_rate_gbps <= 0:
            raise ValueError("expectedRateGbps must be positive")
        if self.limits:
            from muster.read.fabric_ports.thresholds import of_counter

            unknown = sorted(limit.counter for limit in self.limits if not of_counter(limit.counter))
            if unknown:
                raise ValueError(f"limits name {unknown[0]!r}, a counter without a threshold")
