"""What a Linux machine is: one set of collectors for the agent and for snapshots, and one vocabulary of readings."""
