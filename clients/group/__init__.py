"""Membership in a consumer group: assignments of partitions and committed offsets."""
