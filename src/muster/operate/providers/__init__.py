"""Providers of repairs: who carries out a `Repair` on a real machine."""
