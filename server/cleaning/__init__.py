"""Compaction in a running broker: its schedule, its workers, and its status."""
