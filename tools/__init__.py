"""Programs around the broker and the clients: the command line, the console, and the schema registry."""
