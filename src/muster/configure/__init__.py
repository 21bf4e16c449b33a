"""Recipes: criteria and catalogue in, a version-locked recipe out; bundles for what operators deploy with."""
