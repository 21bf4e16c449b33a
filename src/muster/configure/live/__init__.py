"""The live cluster against a locked recipe: what is read of it, what is asserted of it, where it drifted."""
