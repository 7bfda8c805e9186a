"""Compaction in a running broker: when, by whom, and what there is to see of it."""
