"""Records in Avro, Protobuf and JSON with a schema, converted to text.

`schemas.py` finds a schema in files or a registry, `worker.py` is the process that decodes bytes with it, and
`decoder.py` combines both. Schemas and records are untrusted: a separate process handles them, with a deadline and a
memory limit.
"""
