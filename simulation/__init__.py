"""Whole clusters under simulated time: brokers as they are, on a simulated clock, network, disk and ZooKeeper."""
