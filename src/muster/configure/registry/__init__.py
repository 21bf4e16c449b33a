"""Folders in OCI registries."""
