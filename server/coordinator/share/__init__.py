"""The share coordinator: the delivery state of share-partitions (KIP-932)."""
