"""Programs that run for minutes or hours and look for failures that tests of seconds miss. The Makefile starts them.

    soak.sim                make simulate      a simulated broker with faults, one seed after another
    soak.sim.cluster        make clusters      a simulated cluster with faults
    soak.sim.transactions   make transactions  transactions in a simulated cluster with faults
    soak.cleaning           make compaction    random histories of a compacted log
    soak.cluster            make rounds        three broker processes and ZooKeeper: killed, paused, cut off
    soak.groups             make rebalances    group coordinators and members, one seed after another
    soak.hostile            make fuzz          hostile bytes against a broker process
    soak.sanitize           make sanitize      the compiled code under AddressSanitizer and UndefinedBehaviorSanitizer
    soak.scrapes                               Prometheus, which reads a broker under load

`tests/` runs each of them for seconds.
"""
