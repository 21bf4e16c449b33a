"""The controller process: leader election, shared caches, and the controllers that it runs."""
