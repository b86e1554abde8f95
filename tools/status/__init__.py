"""`python -m tools status`: a platform as it is now. Reading, judging and printing are apart."""
