"""Programs that search for failures for minutes or hours. The targets of the Makefile run these programs.

    soak.sim                make simulate      a simulated broker with faults
    soak.sim.cluster        make clusters      a simulated cluster with ZooKeeper and faults
    soak.sim.kraft          make clusters      a simulated KRaft cluster with faults
    soak.sim.share_groups   make clusters      share groups in a simulated cluster with faults
    soak.sim.streams_groups make clusters      a streams group in a simulated cluster with faults
    soak.sim.transactions   make transactions  transactions in a simulated cluster with faults
    soak.cleaning           make compaction    random histories of a compacted log
    soak.cluster            make rounds        faults of three broker processes and ZooKeeper
    soak.kraft              make kraft-rounds  faults of three broker processes and three KRaft controllers
    soak.groups             make rebalances    consumer groups with faults of members and of the broker
    soak.hostile            make fuzz          hostile bytes against a broker process
    soak.sanitize           make sanitize      the compiled code under AddressSanitizer and UndefinedBehaviorSanitizer
    soak.scrapes                               a broker under load that Prometheus scrapes

`tests/` runs these programs for seconds.
"""
