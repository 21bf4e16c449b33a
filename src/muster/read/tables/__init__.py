"""Figures about kernel-log events: counts per node, lists of events, fault rates per driver."""
