"""Client quotas (KIP-13 and later): who may use how much of the broker, how that is measured, what happens beyond."""
