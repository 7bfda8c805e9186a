"""Share groups in simulated time: members that accept, release, reject, renew or ignore records, and crash."""
