"""What a job gets unless a person says otherwise."""

RESTARTS = 3
"""How often a job restarts after failures."""

KEEP_SECONDS = 3600
"""How long a job is kept after its end."""
