"""`muster demo`: the acceptance story on the simulated cluster, with a live view and a report."""
