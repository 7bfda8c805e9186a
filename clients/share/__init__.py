"""Membership in a share group: acquired records, share sessions, acknowledgements (KIP-932)."""
