"""Renderers: one deployment plan in, the files of a bundle out."""
