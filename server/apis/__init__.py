"""Request handling: the table of APIs, their handlers, the context of a request, and the interceptors."""
