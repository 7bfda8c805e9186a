"""Share groups at the leaders of partitions: acquisition, acknowledgement, sessions and dead letters (KIP-932)."""
