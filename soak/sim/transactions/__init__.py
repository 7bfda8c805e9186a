"""Transactions in simulated time: copy loops with zombies, late requests and dying coordinators, exactly once."""
