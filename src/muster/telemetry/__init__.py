"""Health, metrics and log lines of the two deployables."""
