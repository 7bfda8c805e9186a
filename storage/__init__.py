"""The storage engine: partitions as logs of segments, in Kafka's own files. Synchronous; all disk access through `filesystem`."""
