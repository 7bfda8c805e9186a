"""Kafka's built-in config providers (KIP-297): values of settings from files, directories and environment variables."""
