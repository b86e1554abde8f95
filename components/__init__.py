"""The platform's ComponentResources, one a file; `platform.build` wires them into one dependency graph.

Conventions every component follows:

- `TYPE` is its three-part type token; child names start with the component's name.
- Children get `ResourceOptions(parent=self, ...)`, never the caller's options.
- What must exist first arrives as an argument (`after=...`): a component's own `depends_on` does not reach its
  children.
- Resources with an explicit cloud name are replaced delete-first, since two of one name cannot exist.
"""
