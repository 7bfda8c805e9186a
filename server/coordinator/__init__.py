"""Coordinators: each keeps its state in a log that is a topic's partition."""
