"""The fault campaign: `make faults`. Apart from the tests, which take a sample of it."""
