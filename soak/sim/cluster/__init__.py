"""Whole clusters in simulated time: brokers as in the product, a ZooKeeper, clients, faults, and their rules."""
