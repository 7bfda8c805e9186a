"""Every configuration key that Apache Kafka 3.9 and 4.1 know, and a few of our own, as data."""
