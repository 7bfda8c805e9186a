"""What a broker knows and does about the replicas it holds."""
