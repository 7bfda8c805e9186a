"""The embedded tree as other processes use it: over ZooKeeper's own wire protocol."""
