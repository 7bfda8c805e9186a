"""Share groups (KIP-932): members, target assignment, and the topics whose share state is initialized."""
