"""A pod-network control plane for Kubernetes. docs/architecture.md is the map of this package."""
