"""Transactions in simulated time: exactly-once copy loops with zombies, late requests and dying coordinators."""
