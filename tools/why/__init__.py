"""Why a job does not run: what the cluster says of each thing that it must pass."""
