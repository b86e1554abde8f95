"""Platforms on GKE."""
