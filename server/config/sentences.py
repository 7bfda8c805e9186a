"""What each honoured key does here, in one sentence. A key without a sentence is accepted and has no effect."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NO_EFFECT = "Accepted so that configurations of Apache Kafka can be used as they are; it has no effect here."

_MESSAGE_FORMAT = (
    "Format in which records are stored, by the release that brought it (0.8.0, 0.10.0, 0.11.0), as in Kafka 3: it "
    "counts only while `inter.broker.protocol.version` is below 3.0. The older two formats know no record headers."
)
_MIN_IN_SYNC = (
    "In-sync replicas without which acks=all is refused, but never more than the partition has replicas, as in Kafka."
)
_UNCLEAN = "Where no replica in sync is left another one leads, and what it lacks is lost, rather than nobody."
_LARGEST_BATCH = (
    "Largest batch of records that is accepted, as compressed by the producer. It may expand to 24 times this "
    "or 64 MiB, whichever is less, or to this if that is more, but beyond 24 MiB only to 24 times what was sent; and "
    "hold one record for each byte of this, or 100 000."
)

BROKER_SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        "acks.all.durability": (
            "When a record sent with acks=all counts as written: `disk` once an fdatasync has covered it, "
            "`page-cache` once the operating system has it, as in Apache Kafka."
        ),
        "advertised.listeners": (
            "Addresses that clients are told to connect to, one per listener, where they differ from `listeners`."
        ),
        "allow.insecure.listeners": (
            "Whether a listener that asks nobody who they are may be reached from other machines; "
            "otherwise the broker refuses to start with one."
        ),
        "authorizer.class.name": (
            "Who decides what clients may do. The names of Kafka's own authorizers, AclAuthorizer and "
            "StandardAuthorizer, stand for rules that are kept in the cluster; any other is that of an entry point in "
            "`barnabas.authorizers`. Without one everybody may do everything. Beside it stand `super.users` and "
            "`allow.everyone.if.no.acl.found`."
        ),
        "alter.log.dirs.replication.quota.window.num": (
            "Over so many windows of `alter.log.dirs.replication.quota.window.size.seconds` moves between log "
            "directories are measured."
        ),
        "alter.log.dirs.replication.quota.window.size.seconds": (
            "Seconds in one of `alter.log.dirs.replication.quota.window.num`."
        ),
        "auto.create.topics.enable": "Whether a topic is created when a client asks for it by name.",
        "broker.id": "Number of this broker; -1 takes the number found in the log directories, or else 1.",
        "broker.rack": "Name of the place where this broker stands, told to clients.",
        "compression.gzip.level": "Level for batches that the broker compresses with gzip; -1 is gzip's own default.",
        "compression.lz4.level": "Level for batches that the broker compresses with lz4.",
        "compression.type": (
            "Codec in which batches are stored; `producer` keeps what the producer chose, `uncompressed` none."
        ),
        "compression.zstd.level": "Level for batches that the broker compresses with zstd.",
        "connection.failed.authentication.delay.ms": "So long a client that fails to authenticate waits to hear it.",
        "connections.max.idle.ms": "A connection without traffic for this long is closed; none is if it is negative.",
        "coordinator.allow.remote": (
            "Whether `coordinator.listeners` may name addresses that other machines reach. Whoever reaches them reads "
            "and changes everything that has no ACL."
        ),
        "coordinator.listeners": (
            "Addresses at which the metadata store is served to other brokers as if it were a ZooKeeper, as "
            "`127.0.0.1:2181`; if not set, it is served to nobody. Not together with `zookeeper.connect`."
        ),
        "connections.max.reauth.ms": (
            "After so long a client that authenticated by SASL has to do so again; 0: never. Per listener, too."
        ),
        "controller.quota.window.num": (
            "For so many windows of `controller.quota.window.size.seconds` a quota of topic changes may be saved up."
        ),
        "controller.quota.window.size.seconds": "Seconds in one of `controller.quota.window.num`.",
        "default.replication.factor": "Replicas of a topic that is created without a number of its own.",
        "delete.topic.enable": "Whether topics can be deleted.",
        "fetch.max.bytes": "Upper bound for the records in one fetch answer, whatever the client asks for.",
        "health.port": (
            "Port on 127.0.0.1 where `GET /health` answers 200 once clients are served, and where compaction is seen "
            "and asked for (0: any free one, as `barnabas start` has it unless told otherwise); none by default."
        ),
        "metrics.listeners": (
            "Addresses, `host:port` with commas in between, where `GET /metrics` answers Prometheus and OpenMetrics, "
            "and `/health` and `/ready` a probe from outside (no host: all interfaces; port 0: any free one); none by "
            "default."
        ),
        "metrics.otlp.endpoint": (
            "A collector of OpenTelemetry to which all metrics are pushed, `http://host:4318/v1/metrics` "
            "(`pip install 'barnabas[otlp]'`); none by default."
        ),
        "metrics.otlp.interval.ms": "How often they are pushed there.",
        "group.consumer.assignors": (
            "Ways to assign partitions that members of the consumer protocol may ask for, the default first: `uniform` "
            "and `range`."
        ),
        "group.consumer.heartbeat.interval.ms": (
            "How often members of the consumer protocol shall be heard of; a group may have a value of its own."
        ),
        "group.consumer.max.heartbeat.interval.ms": "The longest heartbeat interval that a group may have of its own.",
        "group.consumer.max.session.timeout.ms": "The longest session timeout that a group may have of its own.",
        "group.consumer.max.size": "Members that one group of the consumer protocol may have.",
        "group.consumer.migration.policy": (
            "Whether a group goes over to the consumer protocol when the first member that speaks it joins (upgrade), "
            "and back when the last one leaves (downgrade)."
        ),
        "group.consumer.min.heartbeat.interval.ms": "The shortest heartbeat interval that a group may have of its own.",
        "group.consumer.min.session.timeout.ms": "The shortest session timeout that a group may have of its own.",
        "group.consumer.session.timeout.ms": (
            "How long members of the consumer protocol may be silent; a group may have a value of its own."
        ),
        "group.coordinator.rebalance.protocols": (
            "Without `consumer` in it, members that speak the consumer protocol are refused."
        ),
        "group.initial.rebalance.delay.ms": (
            "How long an empty group waits for more members, after its first and anew after each that comes, before "
            "there is an assignment; at most the rebalance timeout."
        ),
        "group.max.session.timeout.ms": "The longest session timeout that a member of a group may have.",
        "group.max.size": "Members that one group may have.",
        "group.min.session.timeout.ms": "The shortest session timeout that a member of a group may have.",
        "listener.security.protocol.map": "Which security protocol each listener name speaks.",
        "listeners": "Addresses to bind, as NAME://host:port; no host means all interfaces, port 0 any free port.",
        "log.cleaner.backoff.ms": "How long the cleaner rests when no log is dirty enough.",
        "log.cleaner.dedupe.buffer.size": (
            "Memory in which passes of the cleaner remember keys, of all `log.cleaner.threads` together."
        ),
        "log.cleaner.delete.retention.ms": "How long a key without value stays in a compacted log before it goes.",
        "log.cleaner.enable": "Whether logs of topics with `cleanup.policy=compact` are compacted by themselves.",
        "log.cleaner.hash.algorithm": (
            "What the cleaner knows keys by: a longer hash makes it less likely that two are taken for one, `exact` "
            "compares keys, so that they never are."
        ),
        "log.cleaner.io.buffer.load.factor": "How full the memory for keys may become in one pass.",
        "log.cleaner.io.buffer.size": "Bytes of one read of the cleaner, of all `log.cleaner.threads` together.",
        "log.cleaner.io.max.bytes.per.second": "What the cleaner reads and writes in a second at most, on average.",
        "log.cleaner.max.compaction.lag.ms": "A record waits at most this long before its log is due for cleaning.",
        "log.cleaner.min.cleanable.ratio": "Part of a log that must be dirty before it is due for cleaning.",
        "log.cleaner.min.compaction.lag.ms": "A record stays at least this long before it may go by compaction.",
        "log.cleaner.threads": "Logs that are cleaned at the same time, each by a process of its own.",
        "log.cleaner.worker": (
            "Where logs are compacted: `process`, in one of its own, or in threads where none can be started; "
            "`thread`, in threads of the broker's process, as embedded brokers do."
        ),
        "log.cleanup.policy": (
            "`delete` removes old segments by age and size, `compact` all records of a key but the last; or both."
        ),
        "log.dir": "Folder for the logs if `log.dirs` is not set.",
        "inter.broker.protocol.version": (
            "The newest release whose requests brokers of a cluster send each other; below 3.0, settings of message "
            "formats count, too."
        ),
        "log.dirs": "Folders for the logs, separated by commas; new partitions go to the one that holds the fewest.",
        "log.flush.interval.messages": (
            "A log is forced to disk when this many records wait in it, before the last of them is answered."
        ),
        "log.flush.interval.ms": "A log is forced to disk when a record has waited for this long.",
        "log.flush.offset.checkpoint.interval.ms": "How often the offset below which all is on disk is written down.",
        "log.flush.scheduler.interval.ms": "How often logs are looked through for records that waited long enough.",
        "log.flush.start.offset.checkpoint.interval.ms": "How often the first offset of each log is written down.",
        "log.index.interval.bytes": "An index entry is added after this many bytes of records.",
        "log.index.size.max.bytes": "Largest size of an index file; a full index rolls the segment.",
        "log.initial.task.delay.ms": "Retention begins this long after start.",
        "log.message.timestamp.after.max.ms": "How far a record's timestamp may lie ahead of the broker's clock.",
        "log.message.timestamp.before.max.ms": "How far a record's timestamp may lie behind the broker's clock.",
        "log.message.timestamp.difference.max.ms": (
            "Older key for both `log.message.timestamp.before.max.ms` and `.after.max.ms`, which win if they are set."
        ),
        "log.message.timestamp.type": "Whether records keep the producer's timestamp or get the time of the append.",
        "log.preallocate": "Whether segment files get their full size when they are created.",
        "log.retention.bytes": "The oldest segments of a larger partition are deleted; -1 is no limit.",
        "log.retention.check.interval.ms": "How often logs are looked through for segments to delete.",
        "log.retention.hours": "Age at which segments are deleted, if it is given in no smaller unit.",
        "log.message.format.version": _MESSAGE_FORMAT,
        "log.retention.minutes": "Age at which segments are deleted, if it is not given in milliseconds.",
        "log.retention.ms": "Age at which segments are deleted; -1 is never.",
        "log.roll.hours": "Age at which a new segment is begun, if it is not given in milliseconds.",
        "log.roll.jitter.hours": "Most that is taken off `log.roll.hours` by chance, so that logs do not roll at once.",
        "log.roll.jitter.ms": "Most that is taken off `log.roll.ms` by chance, so that logs do not roll at once.",
        "log.roll.ms": "Age at which a new segment is begun.",
        "log.segment.bytes": "Size at which a new segment is begun.",
        "log.segment.delete.delay.ms": "How long a deleted segment's files stay before they are removed.",
        "max.connection.creation.rate": (
            "New connections a second, on all listeners or with its prefix on one: what comes faster waits. A listener "
            "between brokers, if clients have others, knows only the rate with its prefix. Four connections from the "
            "broker's own machine never wait. It cannot be changed to 0 while the broker runs."
        ),
        "max.connections": (
            "Open connections of the whole broker, or with its prefix of one listener; more are closed at once. Four "
            "from the broker's own machine are always let in: whoever has locked all others out undoes it there. For "
            "one on the listener between brokers, if clients have others, another goes that was idle longest. It "
            "cannot be changed to 0 while the broker runs."
        ),
        "max.connections.per.ip": (
            "Open connections from one other machine; further ones are closed at once. Four from the broker's own "
            "machine are always let in. 0 is for `max.connections.per.ip.overrides` that let some address in."
        ),
        "max.connections.per.ip.overrides": (
            "Other values of `max.connections.per.ip` as `address:count,...`; 0 keeps an address out. Four connections "
            "from the broker's own machine are always let in, whatever its addresses have here."
        ),
        "max.incremental.fetch.session.cache.slots": "Incremental fetch sessions that are kept.",
        "max.request.partition.size.limit": "Most partitions that one answer about topic partitions lists.",
        "message.max.bytes": _LARGEST_BATCH,
        "metadata.store.path": (
            "File that keeps topics, ids, configurations and epochs; if not set, `metadata.sqlite` in the first log "
            "directory."
        ),
        "min.insync.replicas": _MIN_IN_SYNC,
        "node.id": "Number of this broker, the name that KRaft gave to `broker.id`.",
        "num.partitions": "Partitions of a topic that is created without a number of its own.",
        "num.recovery.threads.per.data.dir": "Logs of one directory that are loaded at the same time at start.",
        "num.replica.fetchers": "Connections to each leader by which its partitions are followed.",
        "offset.metadata.max.bytes": "Length of the text that a consumer may store with an offset.",
        "offsets.commit.timeout.ms": (
            "How long a commit of offsets, or of a group's assignment, may take before the client is told so."
        ),
        "offsets.retention.check.interval.ms": "How often committed offsets are looked through for expired ones.",
        "offsets.retention.minutes": (
            "How long offsets are kept after their group lost its last member, or after the commit for consumers "
            "that assign their partitions themselves."
        ),
        "offsets.topic.num.partitions": "Partitions of `__consumer_offsets` when it is created.",
        "offsets.topic.replication.factor": "Replicas of `__consumer_offsets` when it is created.",
        "offsets.topic.segment.bytes": "Segment size of `__consumer_offsets` when it is created.",
        "producer.id.expiration.check.interval.ms": "How often producer ids are looked through for expired ones.",
        "producer.id.expiration.ms": "How long a producer id is remembered after its last record.",
        "quota.window.num": (
            "Over so many windows of `quota.window.size.seconds` the use of clients that have a quota is measured."
        ),
        "quota.window.size.seconds": "Seconds in one of `quota.window.num`.",
        "replica.fetch.backoff.ms": "How long a follower waits after a fetch that failed.",
        "replica.fetch.max.bytes": "How much of one partition a follower asks for at once.",
        "replica.fetch.min.bytes": "How much there has to be before a follower's fetch is answered early.",
        "replica.fetch.response.max.bytes": "How much a follower asks for at once, of all partitions together.",
        "replica.fetch.wait.max.ms": "How long a follower's fetch waits at the leader while there is nothing new.",
        "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks are written down.",
        "replica.lag.time.max.ms": (
            "A follower that has not had everything for so long is in sync no longer; each half of it is looked."
        ),
        "replica.selector.class": (
            "`RackAwareReplicaSelector`, with or without Kafka's package, sends consumers that say where they are "
            "(`client.rack`) to a replica in the same rack."
        ),
        "replica.socket.timeout.ms": "How long another broker may take to answer; longer than the wait of a fetch.",
        "replication.quota.window.num": (
            "Over so many windows of `replication.quota.window.size.seconds` throttled replication is measured."
        ),
        "replication.quota.window.size.seconds": "Seconds in one of `replication.quota.window.num`.",
        "socket.listen.backlog.size": "Connections that wait to be accepted.",
        "queued.max.request.bytes": (
            "Memory for requests that have not come completely, of all connections; -1: 256 MiB. One connection "
            "may go beyond, those behind it wait."
        ),
        "socket.request.max.bytes": "Largest request that is read; a larger one closes the connection.",
        "socket.send.buffer.bytes": (
            "Send buffer of each connection; -1 leaves it to the system. So much is on its way to a client at a time: "
            "one that is far away and reads a lot wants its bandwidth times the round trip, or -1."
        ),
        "request.timeout.ms": "How long the markers that end a transaction may take before they are written again.",
        "telemetry.max.bytes": (
            "The most bytes of metrics that a client may push at once, before and after they are decompressed; where "
            "`metrics.listeners` shows them."
        ),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
            "How often transactions are looked for that have been open for longer than their producer said."
        ),
        "transaction.max.timeout.ms": "Longest time that a producer may keep a transaction open.",
        "transaction.partition.verification.enable": (
            "Whether the coordinator is asked before a producer without an epoch for each transaction begins one on a "
            "partition."
        ),
        "transaction.remove.expired.transaction.cleanup.interval.ms": (
            "How often transactional ids are looked through for expired ones."
        ),
        "transaction.state.log.min.isr": "`min.insync.replicas` of `__transaction_state` when it is created.",
        "transaction.state.log.num.partitions": "Partitions of `__transaction_state` when it is created.",
        "transaction.state.log.replication.factor": "Replicas of `__transaction_state` when it is created.",
        "transaction.state.log.segment.bytes": "Segment size of `__transaction_state` when it is created.",
        "transactional.id.expiration.ms": "How long a transactional id is remembered after its last transaction.",
        "sasl.enabled.mechanisms": (
            "How clients of SASL listeners may prove who they are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, "
            'GSSAPI. Passwords of PLAIN are `user_NAME="…"` in `listener.name.NAME.plain.sasl.jaas.config`.'
        ),
        "sasl.kerberos.principal.to.local.rules": (
            "How a Kerberos principal becomes the name of a user: `DEFAULT` or `RULE:…`, of which the first that fits "
            "counts."
        ),
        "sasl.kerberos.service.name": "The first part of the brokers' Kerberos principals.",
        "sasl.server.max.receive.size": ("The largest request of a client that has not authenticated yet."),
        "ssl.cipher.suites": (
            "Cipher suites of TLS 1.2, by Java's names; without any those that OpenSSL holds to be good."
        ),
        "ssl.client.auth": (
            "Whether clients of SSL listeners have to show a certificate: `required`, `requested` or `none`."
        ),
        "ssl.enabled.protocols": ("Which of TLSv1.2 and TLSv1.3 are spoken."),
        "ssl.key.password": ("Password of an encrypted private key."),
        "ssl.keystore.certificate.chain": ("The broker's certificate and those above it, as PEM text (KIP-651)."),
        "ssl.keystore.key": ("The broker's private key, as PEM text (KIP-651)."),
        "ssl.keystore.location": ("File with the broker's key and certificates: PEM or PKCS12."),
        "ssl.keystore.password": ("Password of a PKCS12 store."),
        "ssl.keystore.type": ("PEM, or else the file itself says what it is."),
        "ssl.principal.mapping.rules": (
            "How the name of a certificate's owner becomes that of a user (KIP-371); whom no rule fits is refused."
        ),
        "ssl.truststore.certificates": (
            "Certificates of authorities whose clients are trusted, as PEM text (KIP-651)."
        ),
        "ssl.truststore.location": ("File with certificates of authorities whose clients are trusted: PEM or PKCS12."),
        "ssl.truststore.password": ("Password of a PKCS12 store."),
        "ssl.truststore.type": ("PEM, or else the file itself says what it is."),
        "broker.id.generation.enable": "A broker of a cluster without an id, in file or folders, is given one.",
        "reserved.broker.max.id": "Largest id that operators choose; those that brokers are given lie above it.",
        "zookeeper.connect": (
            "The ensemble that holds the cluster together: addresses with commas between them, and after the last one "
            "the path of this cluster, which is made if it is missing. Without it a broker is alone."
        ),
        "zookeeper.connection.timeout.ms": (
            "How long the first contact with the ensemble may take; if not set, `zookeeper.session.timeout.ms`."
        ),
        "zookeeper.digest.auth": "`user:password` by which the broker proves to the ensemble who it is.",
        "zookeeper.max.in.flight.requests": "Requests to the ensemble that wait for their answers at a time.",
        "zookeeper.session.timeout.ms": "How long nothing is heard of a broker before it is taken for dead.",
        "zookeeper.set.acl": "What brokers write may be written by themselves only, and credentials be read so, too.",
        "zookeeper.ssl.cipher.suites": "Cannot be chosen here: a value is refused.",
        "zookeeper.ssl.client.enable": "The ensemble is reached by TLS.",
        "zookeeper.ssl.crl.enable": "Cannot be done here: `true` is refused.",
        "ssl.endpoint.identification.algorithm": (
            "`https` has certificates of other brokers name the hosts where they are reached; empty lets any pass."
        ),
        "sasl.oauthbearer.client.credentials.client.id": "As whom this broker asks for a token, for other brokers.",
        "sasl.oauthbearer.client.credentials.client.secret": "The secret of that client.",
        "sasl.oauthbearer.clock.skew.seconds": "How much the clock of who signs tokens may differ from the broker's.",
        "sasl.oauthbearer.expected.audience": "One of these a token has to be for; without it `aud` is not looked at.",
        "sasl.oauthbearer.expected.issuer": "Who has to have issued a token; without it `iss` is not looked at.",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "How often the keys by which tokens are signed are read again.",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "The longest pause after a look for keys that failed.",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "The pause after the first look for keys that failed.",
        "sasl.oauthbearer.jwks.endpoint.url": (
            "Where the keys are by which tokens are signed: `https://`, `file://`, or `http://` on the loopback."
        ),
        "sasl.oauthbearer.scope": "What a token is asked for that this broker shows to other brokers.",
        "sasl.oauthbearer.sub.claim.name": "The claim of a token that names the user.",
        "sasl.oauthbearer.token.endpoint.url": "Where this broker gets the token that it shows to other brokers.",
        "sasl.server.callback.handler.class": (
            "Of OAUTHBEARER: `…OAuthBearerUnsecuredValidatorCallbackHandler` believes tokens that nobody has signed."
        ),
        "zookeeper.ssl.endpoint.identification.algorithm": (
            "`HTTPS` has the certificates of the ensemble name its hosts; empty lets any name pass."
        ),
        "zookeeper.ssl.keystore.location": "File with the certificate and the key that the ensemble is shown, as PEM.",
        "zookeeper.ssl.keystore.password": "Of the key in `zookeeper.ssl.keystore.location`.",
        "zookeeper.ssl.keystore.type": "`PEM`; anything else is refused.",
        "zookeeper.ssl.ocsp.enable": "Cannot be done here: `true` is refused.",
        "zookeeper.ssl.truststore.location": (
            "File with the certificates that the ensemble's are checked by, as PEM; without it the system's."
        ),
        "zookeeper.ssl.truststore.type": "`PEM`; anything else is refused.",
        "auto.leader.rebalance.enable": "The controller has preferred leaders lead again, now and then.",
        "controlled.shutdown.enable": "A broker of a cluster has others lead what it leads before it stops.",
        "controlled.shutdown.max.retries": "How often it asks the controller for that.",
        "controlled.shutdown.retry.backoff.ms": "How long it waits before it asks again.",
        "controller.socket.timeout.ms": "How long another broker may take to answer, but for fetches.",
        "delegation.token.expiry.check.interval.ms": "How often delegation tokens that are over are removed.",
        "delegation.token.expiry.time.ms": "For how long a delegation token is good before it has to be renewed.",
        "delegation.token.master.key": "The older name of `delegation.token.secret.key`.",
        "delegation.token.max.lifetime.ms": "For how long a delegation token can be renewed.",
        "delegation.token.secret.key": (
            "What the secrets of delegation tokens are made of: the same on all brokers. Without it there are none."
        ),
        "inter.broker.listener.name": (
            "The listener where brokers reach each other; if not set, that of `security.inter.broker.protocol`."
        ),
        "leader.imbalance.check.interval.seconds": "How often `auto.leader.rebalance.enable` looks at leaders.",
        "leader.imbalance.per.broker.percentage": (
            "How many percent of what a broker should lead others may lead before `auto.leader.rebalance.enable` acts."
        ),
        "unclean.leader.election.enable": _UNCLEAN,
        "control.plane.listener.name": (
            "The listener where the controller gives orders and is asked, if that is another than brokers have else."
        ),
        "sasl.mechanism.inter.broker.protocol": (
            "How brokers prove to each other who they are, by what the listener's JAAS string says: `username` and "
            "`password`, or a keytab; or by a token."
        ),
        "security.inter.broker.protocol": (
            "The listener of that name is where brokers reach each other, unless `inter.broker.listener.name` is set."
        ),
    }
)

TOPIC_SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": (
            "`delete` removes old segments by age and size, `compact` all records of a key but the last; or both."
        ),
        "compression.gzip.level": "Level for batches that the broker compresses with gzip; -1 is gzip's own default.",
        "compression.lz4.level": "Level for batches that the broker compresses with lz4.",
        "compression.type": (
            "Codec in which batches are stored; `producer` keeps what the producer chose, `uncompressed` none."
        ),
        "compression.zstd.level": "Level for batches that the broker compresses with zstd.",
        "delete.retention.ms": "How long a key without value stays in a compacted log before it goes.",
        "file.delete.delay.ms": "How long a deleted segment's files stay before they are removed.",
        "flush.messages": (
            "The log is forced to disk when this many records wait in it, before the last of them is answered."
        ),
        "flush.ms": "The log is forced to disk when a record has waited for this long.",
        "follower.replication.throttled.replicas": (
            "Replicas, `partition:broker,…` or `*`, that do not fetch faster than their broker's "
            "`follower.replication.throttled.rate` while they are not in sync."
        ),
        "index.interval.bytes": "An index entry is added after this many bytes of records.",
        "internal.segment.bytes": (
            "Size at which a new segment is begun, in place of `segment.bytes`; for tests. A batch that is larger is "
            "refused, and one with a single short record has about 80 bytes."
        ),
        "leader.replication.throttled.replicas": (
            "Replicas, `partition:broker,…` or `*`, that get nothing faster than their leader's "
            "`leader.replication.throttled.rate` while they are not in sync."
        ),
        "max.compaction.lag.ms": "A record waits at most this long before its log is due for cleaning.",
        "max.message.bytes": _LARGEST_BATCH,
        "message.format.version": _MESSAGE_FORMAT,
        "message.timestamp.after.max.ms": "How far a record's timestamp may lie ahead of the broker's clock.",
        "message.timestamp.before.max.ms": "How far a record's timestamp may lie behind the broker's clock.",
        "message.timestamp.difference.max.ms": (
            "Older key for both `message.timestamp.before.max.ms` and `.after.max.ms`, which win if they are set."
        ),
        "message.timestamp.type": "Whether records keep the producer's timestamp or get the time of the append.",
        "min.cleanable.dirty.ratio": "Part of a log that must be dirty before it is due for cleaning.",
        "min.compaction.lag.ms": "A record stays at least this long before it may go by compaction.",
        "min.insync.replicas": _MIN_IN_SYNC,
        "preallocate": "Whether segment files get their full size when they are created.",
        "retention.bytes": "The oldest segments of a larger partition are deleted; -1 is no limit.",
        "retention.ms": "Age at which segments are deleted; -1 is never.",
        "segment.bytes": "Size at which a new segment is begun.",
        "segment.index.bytes": "Largest size of an index file; a full index rolls the segment.",
        "segment.jitter.ms": "Most that is taken off `segment.ms` by chance, so that logs do not roll at once.",
        "segment.ms": "Age at which a new segment is begun.",
        "unclean.leader.election.enable": _UNCLEAN,
    }
)
