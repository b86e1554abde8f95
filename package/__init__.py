"""The platform as a component of a package, for Pulumi programs in other languages (docs/component-package.md)."""
