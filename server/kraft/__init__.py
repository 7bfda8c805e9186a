"""A broker in a KRaft cluster: its metadata, its publishers and its requests to the controllers."""
