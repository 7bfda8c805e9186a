"""The sender of a request that followers send as well: a broker's id, or a special value for clients."""

CONSUMER_REPLICA_ID = -1
