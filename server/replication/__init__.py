"""The replicas of a broker: appends, reads, replication, purgatories and fetch sessions."""
