"""HTTP on one side, `Objects`, `Store` and `Hub` on the other: one module a family of verbs."""
