"""Share groups in simulated time: members that accept, release, reject, renew, forget and crash."""
