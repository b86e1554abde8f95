"""What follows from a platform: pure functions and frozen values, nothing of Pulumi."""
