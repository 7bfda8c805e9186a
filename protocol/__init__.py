"""The Kafka wire protocol and record formats: bytes to values and back, without I/O."""
