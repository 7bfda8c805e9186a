"""Regular expressions that clients and operators write."""
