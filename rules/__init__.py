"""What is refused, and why: one function a rule, with its reason and upstream source.

Rules come in scopes: `shape` (one slice by itself; the first refusal ends the check, since later rules build on it),
`size` (all slices together, before each is planned), `slices` (a slice within its platform), `platform` and `queues`. A
rule may apply to one back end only: GKE or Compute Engine. A rule yields a `Finding` for each thing to correct.
`registry` defines rules and scopes, `check` runs them, `load` reads a platform and runs them. docs/rules.md is
generated from them.
"""
