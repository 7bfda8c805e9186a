"""Who reads, in requests that followers send as well: a broker's id, or that of all who are no broker."""

CONSUMER_REPLICA_ID = -1
