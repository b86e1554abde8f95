"""What is refused, and why: one function a rule, with its reason and upstream source.

Rules come in scopes: `shape` (one slice by itself, in order; the first refusal ends it, since later ones build on it),
`size` (all slices together, before anything is planned for each), `slices` (a slice within its platform), `platform`
and `queues`. A rule may be one back end's: node pools of GKE, or managed instance groups of Compute Engine. A rule
yields a `Finding` for each thing to put right. `registry` holds all of them, `check` runs them, `load` reads a platform
and runs them, and docs/rules.md is made from them.
"""
