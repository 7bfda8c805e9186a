"""The storage engine: a partition as a log of segments, in Kafka's own files. Synchronous; the disk is a port."""
