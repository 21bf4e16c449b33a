"""A real Kubernetes control plane for the tests: where its programs come from, and how it is run."""
