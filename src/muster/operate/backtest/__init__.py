"""Trying policies on recorded history and on cases that people write. Pure."""
