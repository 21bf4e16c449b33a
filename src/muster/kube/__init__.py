"""The one way to talk to Kubernetes. Nothing else in the tree opens a connection to it."""
