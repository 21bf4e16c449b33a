"""An embedded Kubernetes API and a simulated fleet, for the demo and for tests."""
