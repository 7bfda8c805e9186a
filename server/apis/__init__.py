"""The request side of the broker: the table of APIs, what a handler knows of its request, and the handlers."""
