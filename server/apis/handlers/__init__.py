"""One file per API: what the broker does with a request."""
