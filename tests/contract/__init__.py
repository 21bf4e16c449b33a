"""One suite, two servers: what Muster relies on, asked of the simulated API server and of a real one."""
