"""One file per API: the request and response of every version, as data."""
