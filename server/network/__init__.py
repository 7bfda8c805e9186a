"""Sockets in and out: frames, order per connection, limits and back-pressure."""
