"""Bundles: what a person chooses, what is written, how it is read back, shared and removed."""
