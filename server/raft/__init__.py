"""A broker's part in a KRaft cluster: its replica of `__cluster_metadata`, and requests to the active controller."""
