"""The transaction coordinator: producer ids, open transactions, and their commit or abort (KIP-98, KIP-890)."""
