"""Thin verbs over the packages. Each verb lives in a module of its own and is imported only when it is called."""
