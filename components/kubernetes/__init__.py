"""What is inside a cluster, whoever runs it."""
