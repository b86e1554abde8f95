"""Tests of the component package."""
