"""Security benches: throughput over TLS, clients that connect and authenticate, and ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench import load
from bench.bench import BROKERS, LIMIT, THROUGHPUT, Bench, Figures, Goal, Run
from bench.doors import PASSWORD, USER, Doors
from bench.groups import LEAST_S, TOPIC, beside, prepare_groups, produce_p99_ms
from bench.process import CpuMeter
from bench.requests import spent_on
from bench.targets import BrokerTarget, make_target
from bench.throughput import limits_of_round, prepare_fetch
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

RULES, RULES_EACH, USERS = 10_000, 1000, 10
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""There is no super user, because the authorizer checks super users before ACLs."""
SAME_OR_BETTER = (Goal("mb_per_s", "kafka", 1.0), Goal("cpu_s_per_gb", "kafka", 0.8))


def _of(run: Run) -> tuple[BrokerTarget, Doors]:
    target = run.target
    assert isinstance(target, BrokerTarget) and target.doors is not None, "the target has no TLS listener"
    return target, target.doors


def measure_produce(run: Run) -> Figures:
    """Measure two librdkafka producers over TLS."""
    target, doors = _of(run)
    topic, size = run.topic("tls-produce"), 1000
    target.create_topic(topic)
    meter = CpuMeter(target.pids)
    config = {"acks": 1, "linger.ms": 5, **doors.of_librdkafka()}
    limits = limits_of_round("produce", run.seconds, size)
    figures = load.run("produce", bootstrap=doors.tls, topic=topic, size=size, producers=2, config=config, **limits)
    figures["cpu_s_per_gb"] = meter.spent() / (figures["records"] * size / 1e9)
    target.delete_topic(topic)
    return figures


def measure_fetch(run: Run) -> Figures:
    """Measure librdkafka's consumer over TLS, from the page cache."""
    target, doors = _of(run)
    meter, records = CpuMeter(target.pids), int(run.state["records"])
    config = doors.of_librdkafka()
    figures = load.run("consume", bootstrap=doors.tls, topic="fetch", size=1000, records=records, config=config)
    figures["cpu_s_per_gb"] = meter.spent() / (max(records, figures["records"]) * 1000 / 1e9)
    return figures


def prepare_doors(run: Run) -> None:
    """Prepare as for groups, and create a SCRAM user."""
    prepare_groups(run)
    target, _ = _of(run)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    changes: list[UserScramCredentialAlteration] = [UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())]
    for future in target.admin().alter_user_scram_credentials(changes).values():
        future.result(60)


@contextmanager
def neighbour(run: Run) -> Iterator[Run]:
    """Run another Barnabas broker on this machine, whichever server is measured. Only the producers connect to it."""
    _, doors = _of(run)
    other = make_target("barnabas", doors.ca.parent / "neighbour")
    try:
        other.start()
        other.create_topic(TOPIC)
        yield Run(other, run.seconds, run.number)
    finally:
        other.remove()


def measure_arrivals(*, scram: bool) -> Any:
    """Return a function that measures clients that connect, authenticate and disconnect, four at a time.

    A producer sends requests to the same broker, and then to another broker on the machine.
    """

    def measure(run: Run) -> Figures:
        target, doors = _of(run)
        seconds = max(run.seconds, LEAST_S)
        come = partial(
            load.run,
            "arrivals",
            bootstrap=doors.scram if scram else doors.tls,
            settings=doors.of_ours(scram=scram),
            seconds=seconds,
        )
        calm = produce_p99_ms(run, seconds)
        with ThreadPoolExecutor() as pool, neighbour(run) as other:
            meter, producing = CpuMeter(target.pids), pool.submit(produce_p99_ms, run, seconds)
            figures = come()
            busy = producing.result()
            cost = meter.spent() * 1e3 / figures["arrivals"]
            producing = pool.submit(produce_p99_ms, other, seconds)
            come()
            elsewhere = producing.result()
        return {
            "arrivals_per_s": figures["arrivals_per_s"],
            "cpu_ms_per_arrival": cost,
            **beside(calm, busy),
            "produce_p99_ms_elsewhere": elsewhere,
            "produce_p99_ratio_elsewhere": busy / elsewhere,
        }

    return measure


@contextmanager
def rules(target: BrokerTarget, topic: str) -> Iterator[None]:
    """Create ten thousand ACLs: one allows access to this topic, the others are for other topics and users."""
    admin = target.admin()

    def rule(name: str, user: str) -> AclBinding:
        allow, every = AclPermissionType.ALLOW, AclOperation.ALL
        return AclBinding(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, f"User:{user}", "*", every, allow)

    made = [rule(f"other-{number // USERS}", f"user-{number % USERS}") for number in range(RULES - 1)]
    made.append(rule(topic, "ANONYMOUS"))
    for start in range(0, RULES, RULES_EACH):
        for future in admin.create_acls(made[start : start + RULES_EACH], request_timeout=120).values():
            future.result(120)
    yield
    anybody = AclBindingFilter(
        ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for future in admin.delete_acls([anybody], request_timeout=120).values():
        future.result(120)


def measure_rules(run: Run) -> Figures:
    """Measure the server time of a request without ACLs and with ten thousand ACLs."""
    target = run.target
    assert isinstance(target, BrokerTarget)
    topic = run.topic("ruled")
    target.create_topic(topic)
    none = spent_on(run, "single", topics=[topic])[1]
    with rules(target, topic):
        many = spent_on(run, "single", topics=[topic])[1]
    target.delete_topic(topic)
    return {"cpu_us_0": none, "cpu_us_10000": many, "ratio": many / none}


def secured_benches() -> list[Bench]:
    """Return the benches of TLS, of connecting clients, and of ACLs."""
    arrivals = {"arrivals_per_s": "higher", "cpu_ms_per_arrival": "lower"}
    whose = ("ms_calm", "ms", "ratio", "ms_elsewhere", "ratio_elsewhere")
    meanwhile = {f"produce_p99_{one}": "lower" for one in whose}
    kinds = (("tls", "by TLS 1.3", False), ("scram", "by SCRAM-SHA-512 over TLS 1.3", True))
    return [
        Bench(
            "tls-produce-1k",
            "1 KB records over TLS 1.3, one partition, acks 1, by librdkafka",
            THROUGHPUT,
            measure_produce,
            targets=BROKERS,
            doors=True,
            goals=SAME_OR_BETTER,
        ),
        Bench(
            "tls-fetch-1k",
            "1 KB records in the page cache over TLS 1.3, one partition, by librdkafka",
            THROUGHPUT,
            measure_fetch,
            prepare_fetch,
            targets=BROKERS,
            doors=True,
            goals=SAME_OR_BETTER,
        ),
        *(
            Bench(
                f"arrivals-{name}",
                f"clients that connect {how} and disconnect, four at a time at idle priority, "
                "during 1000 produce requests per second",
                arrivals | meanwhile,
                measure_arrivals(scram=scram),
                prepare_doors,
                targets=BROKERS,
                doors=True,
                goals=(
                    Goal("arrivals_per_s", "kafka", 0.7),
                    Goal("produce_p99_ratio", LIMIT, 2),
                    Goal("produce_p99_ratio_elsewhere", LIMIT, 2),
                ),
            )
            for name, how, scram in kinds
        ),
        Bench(
            "rules-10000",
            "server time of a single-record request without ACLs and with 10 000 ACLs",
            {"cpu_us_0": "lower", "cpu_us_10000": "lower", "ratio": "lower"},
            measure_rules,
            targets=BROKERS,
            properties=AUTHORIZER,
            goals=(Goal("ratio", LIMIT, 1.1),),
            warm_by=("cpu_us_0", "cpu_us_10000"),
        ),
    ]
