"""Layers of users over the built-in catalogue."""
