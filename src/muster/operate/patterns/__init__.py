"""Patterns over the history of one node: what repeats, what comes alone, what comes back after a repair. Pure."""
