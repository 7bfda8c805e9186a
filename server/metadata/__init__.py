"""Cluster metadata: the port of the store, its implementations, the stores of topics and settings, and the cache."""
