"""Objects inside a cluster, whoever runs it."""
