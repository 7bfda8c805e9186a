"""The broker: sockets, APIs, replication, metadata, and their composition."""
