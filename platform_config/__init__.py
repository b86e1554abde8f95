"""What a person writes about a TPU platform, and how it is read. It does not know what is derived from it."""
