"""A modelled KRaft quorum: controllers that follow Raft's visible behaviour, for simulations of whole brokers."""
