"""Consumer groups: who is a member, who reads what, how far they have read."""
