"""ZooKeeper's wire protocol as data: records, operations, errors, and the frames of one connection. No I/O.

Source: zookeeper.jute, ZooDefs, KeeperException and Watcher of Apache ZooKeeper 3.8.
"""
