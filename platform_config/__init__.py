"""What a person writes about a TPU platform, and how it is read. Knows nothing of what follows from it."""
