"""Certification: run real work over groups of nodes and narrow failures to nodes, links or layers."""
