"""What is derived from a platform: pure functions and frozen values, without Pulumi."""
