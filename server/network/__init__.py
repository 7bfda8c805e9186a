"""Sockets and connections: frames, order per connection, limits and back-pressure."""
