"""Groups of the consumer protocol (KIP-848): the broker assigns partitions, and members go over to them one by one."""
