"""The kind testbed: a real Kubernetes cluster of three nodes, with or without a container registry."""
