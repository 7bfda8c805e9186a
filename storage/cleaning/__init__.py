"""Log compaction: keeps the last value of every key."""
