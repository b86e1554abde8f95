"""Platforms on Compute Engine."""
