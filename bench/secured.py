"""Security benches: throughput over TLS, clients that connect and authenticate, and ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench import load
from bench.bench import BROKERS, LIMIT, THROUGHPUT, Bench, Figures, Goal, Run
from bench.groups import MIN_LATENCY_S, TOPIC, prepare_groups, produce_latencies, produce_p99_ms
from bench.listeners import PASSWORD, USER, SecuredListeners
from bench.process import CpuMeter
from bench.requests import run_metered
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

ACLS, ACLS_PER_REQUEST, USERS = 10_000, 1000, 10
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""There is no super user, because the authorizer checks super users before ACLs."""
SAME_OR_BETTER = (Goal("mb_per_s", "kafka", 1.0), Goal("cpu_s_per_gb", "kafka", 0.8))


def _target_of(run: Run) -> tuple[BrokerTarget, SecuredListeners]:
    target = run.target
    assert isinstance(target, BrokerTarget) and target.listeners is not None, "the target has no TLS listener"
    return target, target.listeners


def measure_produce(run: Run) -> Figures:
    """Measure two librdkafka producers over TLS."""
    target, listeners = _target_of(run)
    topic, size = run.topic("tls-produce"), 1000
    target.create_topic(topic)
    meter = CpuMeter(target.pids)
    config = {"acks": 1, "linger.ms": 5, **listeners.librdkafka_settings()}
    limits = limits_of_round("produce", run.seconds, size)
    figures = load.run("produce", bootstrap=listeners.tls, topic=topic, size=size, producers=2, config=config, **limits)
    figures["cpu_s_per_gb"] = meter.spent() / (figures["records"] * size / 1e9)
    target.delete_topic(topic)
    return figures


def measure_fetch(run: Run) -> Figures:
    """Measure librdkafka's consumer over TLS, from the page cache."""
    target, listeners = _target_of(run)
    meter, records = CpuMeter(target.pids), int(run.state["records"])
    config = listeners.librdkafka_settings()
    figures = load.run("consume", bootstrap=listeners.tls, topic="fetch", size=1000, records=records, config=config)
    figures["cpu_s_per_gb"] = meter.spent() / (max(records, figures["records"]) * 1000 / 1e9)
    return figures


def prepare_arrivals(run: Run) -> None:
    """Prepare as for groups, and create a SCRAM user."""
    prepare_groups(run)
    target, _ = _target_of(run)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    changes: list[UserScramCredentialAlteration] = [UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())]
    for future in target.admin().alter_user_scram_credentials(changes).values():
        future.result(60)


@contextmanager
def other_broker(run: Run) -> Iterator[Run]:
    """Run another Barnabas broker on this machine, whichever server is measured. Only the producers connect to it."""
    _, listeners = _target_of(run)
    other = make_target("barnabas", listeners.ca.parent / "other-broker")
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
        target, listeners = _target_of(run)
        seconds = max(run.seconds, MIN_LATENCY_S)
        run_arrivals = partial(
            load.run,
            "arrivals",
            bootstrap=listeners.scram if scram else listeners.tls,
            settings=listeners.client_settings(scram=scram),
            seconds=seconds,
        )
        calm = produce_p99_ms(run, seconds)
        with ThreadPoolExecutor() as pool, other_broker(run) as other:
            meter, producing = CpuMeter(target.pids), pool.submit(produce_p99_ms, run, seconds)
            figures = run_arrivals()
            busy = producing.result()
            cost = meter.spent() * 1e3 / figures["arrivals"]
            producing = pool.submit(produce_p99_ms, other, seconds)
            run_arrivals()
            other_p99_ms = producing.result()
        return {
            "arrivals_per_s": figures["arrivals_per_s"],
            "cpu_ms_per_arrival": cost,
            **produce_latencies(calm, busy),
            "produce_p99_ms_elsewhere": other_p99_ms,
            "produce_p99_ratio_elsewhere": busy / other_p99_ms,
        }

    return measure


@contextmanager
def acls(target: BrokerTarget, topic: str) -> Iterator[None]:
    """Create ten thousand ACLs: one allows access to this topic, the others are for other topics and users."""
    admin = target.admin()

    def acl(name: str, user: str) -> AclBinding:
        allow, every = AclPermissionType.ALLOW, AclOperation.ALL
        return AclBinding(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, f"User:{user}", "*", every, allow)

    made = [acl(f"other-{number // USERS}", f"user-{number % USERS}") for number in range(ACLS - 1)]
    made.append(acl(topic, "ANONYMOUS"))
    for start in range(0, ACLS, ACLS_PER_REQUEST):
        for future in admin.create_acls(made[start : start + ACLS_PER_REQUEST], request_timeout=120).values():
            future.result(120)
    yield
    any_acl = AclBindingFilter(
        ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for future in admin.delete_acls([any_acl], request_timeout=120).values():
        future.result(120)


def measure_acls(run: Run) -> Figures:
    """Measure the server time of a request without ACLs and with ten thousand ACLs."""
    target = run.target
    assert isinstance(target, BrokerTarget)
    topic = run.topic("ruled")
    target.create_topic(topic)
    none = run_metered(run, "single", topics=[topic])[1]
    with acls(target, topic):
        many = run_metered(run, "single", topics=[topic])[1]
    target.delete_topic(topic)
    return {"cpu_us_0": none, "cpu_us_10000": many, "ratio": many / none}


def secured_benches() -> list[Bench]:
    """Return the benches of TLS, of connecting clients, and of ACLs."""
    arrivals = {"arrivals_per_s": "higher", "cpu_ms_per_arrival": "lower"}
    suffixes = ("ms_calm", "ms", "ratio", "ms_elsewhere", "ratio_elsewhere")
    latencies = {f"produce_p99_{suffix}": "lower" for suffix in suffixes}
    kinds = (("tls", "by TLS 1.3", False), ("scram", "by SCRAM-SHA-512 over TLS 1.3", True))
    return [
        Bench(
            "tls-produce-1k",
            "1 KB records over TLS 1.3, one partition, acks 1, by librdkafka",
            THROUGHPUT,
            measure_produce,
            targets=BROKERS,
            secured=True,
            goals=SAME_OR_BETTER,
        ),
        Bench(
            "tls-fetch-1k",
            "1 KB records in the page cache over TLS 1.3, one partition, by librdkafka",
            THROUGHPUT,
            measure_fetch,
            prepare_fetch,
            targets=BROKERS,
            secured=True,
            goals=SAME_OR_BETTER,
        ),
        *(
            Bench(
                f"arrivals-{name}",
                f"clients that connect {how} and disconnect, four at a time at idle priority, "
                "during 1000 produce requests per second",
                arrivals | latencies,
                measure_arrivals(scram=scram),
                prepare_arrivals,
                targets=BROKERS,
                secured=True,
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
            measure_acls,
            targets=BROKERS,
            properties=AUTHORIZER,
            goals=(Goal("ratio", LIMIT, 1.1),),
            warm_by=("cpu_us_0", "cpu_us_10000"),
        ),
    ]
