"""Records in Avro, Protobuf and JSON with a schema, as text.

`schemas.py` finds a schema in files or a registry, `worker.py` is the process that applies it to bytes, `process.py` is
that process as the console sees it, and `decoder.py` puts them together. Neither schemas nor records are trusted: what
is made of them happens in a process of its own, with a deadline and little memory.
"""
