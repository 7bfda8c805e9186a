"""Clusters in simulated time: real broker code, a ZooKeeper, clients, faults, and the checked guarantees."""
