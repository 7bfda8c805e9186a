"""Every configuration key of Apache Kafka 3.9 and 4.1, and Barnabas's additional keys, as data."""
