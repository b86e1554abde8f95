"""What a checkout needs to run the program, and no more."""

PROGRAM = ("Pulumi.yaml", "__main__.py", "catalogue", "platform_config", "plan", "rules", "components")
ADAPTER = ("pyproject.toml", "sandbox_adapter.py", "tools", "policies")
"""What a sandbox asks of the program, and what that needs."""
