"""Guard rails for any stack with TPU capacity: rules over planned resources of any program.

The rules are plain functions in `policies.rules` and need nothing but `catalogue`, `plan` and `rules`; `policies.pack`
registers them with Pulumi.
"""
