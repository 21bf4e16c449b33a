"""Correlation: the same finding on many nodes, and what changed on them before. Pure."""
