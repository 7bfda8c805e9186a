"""Who sends a request that followers send as well: a broker's id, or one that stands for all who are no broker."""

CONSUMER_REPLICA_ID = -1
