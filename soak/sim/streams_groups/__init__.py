"""Streams groups in simulated time: members that join, leave, pause and crash, and each task has one active owner."""
