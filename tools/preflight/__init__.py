"""Whether Google Cloud can give what a plan asks for, found by reading only, before anything is created."""
