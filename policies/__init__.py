"""Guard rails for any stack with TPU capacity: rules over planned resources, whoever wrote these.

The rules are plain functions in `policies.rules` and need nothing but `catalogue`, `plan` and `rules`;
`policies.pack` hands them to Pulumi.
"""
