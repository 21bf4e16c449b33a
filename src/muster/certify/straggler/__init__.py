"""Slow ranks of a synchronous job, told apart from those that wait for them. Pure."""
