"""What the cluster forgets, kept in SQLite or PostgreSQL, so that goodput can be told for weeks."""
