"""Transactions: who is in the middle of one, and that each ends everywhere or nowhere (KIP-98, KIP-890)."""
