"""What machine output means: one pure parser per format, used by the agent, the runners and `muster read`."""
