"""Quotas of clients and replication (KIP-13 and later): limits, measurements and throttling."""
