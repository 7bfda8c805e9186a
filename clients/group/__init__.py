"""Membership in a consumer group: who gets which partitions, and where the group has come to."""
