"""Every edit of the configuration: one table, what the graph says of it, and what the real engine makes of it."""
