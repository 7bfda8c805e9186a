"""Streams groups in simulated time: members join, leave, pause and crash, and each task has one active owner."""
