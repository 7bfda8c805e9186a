"""KRaft clusters in simulated time: whole brokers, modelled controllers, clients, faults, and their rules."""
