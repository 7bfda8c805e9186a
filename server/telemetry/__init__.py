"""Metrics that clients collect and push to the broker (KIP-714)."""
