"""What clients measure of themselves and push to the broker (KIP-714)."""
