"""Tests of the room configure."""
