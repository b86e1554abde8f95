"""Benchmarks: `make bench`. Apart from the tests, since they measure and do not judge."""
