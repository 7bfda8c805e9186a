"""KRaft clusters in simulated time: real broker code, modelled controllers, clients, faults, and the guarantees."""
