"""The bench itself: ratios and tables are right, the load is legal, and every load gives sane figures."""

import select
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, cast
from xml.etree.ElementTree import fromstring as parse_xml

import pytest
from bench import single, throughput
from bench.bench import LIMIT, Run
from bench.catalogue import BENCHES
from bench.ceiling import CODEC_POSITION, PartitionFile, Sink
from bench.plot import growth_plot
from bench.published import markdown
from bench.replay import batch_of
from bench.report import BenchResult, Spread, read_json, write_json
from bench.runner import Plan, run_bench
from bench.wire import Cycle, ResponseCounter, connect, enable_arrival_timestamps, one_record_batch, receive_with_time
from tests.server_process import wait_until

from barnabas.protocol.batch_header import write_crc
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.record_batch import iter_batches


def result_of(name: str) -> BenchResult:
    result = BenchResult(BENCHES[name])
    for ours, kafka in ((100.0, 50.0), (90.0, 60.0), (120.0, 40.0)):
        result.add("barnabas", {"mb_per_s": ours, "cpu_s_per_gb": 1.0})
        result.add("kafka", {"mb_per_s": kafka, "cpu_s_per_gb": 4.0})
    return result


def test_ratios_are_taken_round_by_round() -> None:
    result = result_of("produce-1k")
    assert result.ratio("mb_per_s", "kafka") == Spread(2.0, 1.5, 3.0)
    assert result.ratio("mb_per_s", "ceiling") is None
    text = markdown([result])
    assert "| mb_per_s (higher is better) | 100 (90–120) | 50 (40–60) | 2 (1.5–3) |" in text
    assert "| cpu_s_per_gb (lower is better) | 1 | 4 | 0.25 |" in text


def test_the_plot_has_a_line_for_each_target() -> None:
    results = [BenchResult(BENCHES[f"growth-{kind}"]) for kind in ("topics", "partitions", "connections")]
    for result in results:
        for target, factor in (("barnabas", 1), ("kafka", 5)):
            result.add(target, dict.fromkeys(result.bench.figures, factor * 10.0))
    picture = growth_plot(results)
    parse_xml(picture)
    assert picture.count("<circle") == 3 * 2 * 4
    assert "Barnabas" in picture and "Apache Kafka" in picture


def test_the_batch_of_the_load_is_legal() -> None:
    [batch] = iter_batches(memoryview(bytearray(one_record_batch(b"x" * 100, 1_700_000_000_000))))
    [record] = batch.records()
    assert (record.key, bytes(record.value or b""), record.timestamp) == (None, b"x" * 100, 1_700_000_000_000)


@pytest.mark.parametrize("partitions", [1, 3])
def test_an_error_in_any_answer_is_seen(partitions: int) -> None:
    responses = ResponseCounter("topic", partitions)
    size, error_at = responses.size, responses.error_positions[-1]
    good = bytearray(size)
    struct.pack_into(">i", good, 0, size - 4)
    bad = bytearray(good)
    struct.pack_into(">h", bad, error_at, 3)
    assert responses.add(bytes(good + good[:10])) == 1
    assert responses.add(bytes(good[10:])) == 1
    with pytest.raises(RuntimeError, match="error"):
        responses.add(bytes(good + bad))


@pytest.mark.parametrize("count", [1, 3, 64, 100])
def test_a_cycle_names_every_request_equally_often(count: int) -> None:
    requests = [number.to_bytes(2, "big") for number in range(count)]
    cycle = Cycle(requests, 64)
    taken = b"".join(bytes(piece) for step in (1, 64, 200, 3 * count - 1) for piece in cycle.take(step))
    seen = [taken[at : at + 2] for at in range(0, len(taken), 2)]
    assert len(seen) == 264 + 3 * count
    assert seen[:count] == seen[count : 2 * count]
    assert sorted(seen[:count]) == requests


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux notes when bytes come")
def test_an_answer_has_come_when_it_is_there_and_not_when_it_is_read() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        connect(f"127.0.0.1:{listener.getsockname()[1]}") as client,
        listener.accept()[0] as server,
    ):
        enable_arrival_timestamps(client)

        def is_noted() -> bool:
            """The kernel begins to take notes a little later; until then bytes come when they are read."""
            sent = time.time()
            server.sendall(b"answer")
            select.select([client], [], [], 10)
            seen = time.time()
            data, arrived = receive_with_time(client)
            assert data == b"answer" and arrived > sent - 0.001
            return arrived < seen

        wait_until(is_noted, timeout_s=60, what="the kernel notes when bytes come")


def test_goals_are_judged_by_the_median() -> None:
    result = result_of("produce-1k")
    assert [result.reached(goal) for goal in result.bench.goals] == [True, None]
    assert result.goal_rows() == [["produce-1k", "mb_per_s", "kafka", "≥ 1.4 ×", "2 (1.5–3)", "yes"]]
    for figures in result.rounds["kafka"]:
        figures["mb_per_s"] = 100.0
    assert result.goal_rows()[0][-1] == "**no**"


def test_the_goals_name_figures_that_are_measured() -> None:
    for bench in BENCHES.values():
        assert set(bench.warm_by) <= set(bench.figures), bench.name
        for goal in bench.goals:
            assert goal.figure in bench.figures, bench.name
            assert goal.against in (*bench.targets, "ceiling", LIMIT), bench.name


def test_a_goal_may_be_a_limit() -> None:
    result = BenchResult(BENCHES["group-restart"])
    for load_s, ratio in ((1.0, 2.0), (1.5, 1.8)):
        result.add("barnabas", {"load_s": load_s, "produce_p99_ratio": ratio})
    assert [row[1:] for row in result.goal_rows()] == [
        ["load_s", LIMIT, "≤ 2", "1.25 (1–1.5)", "yes"],
        ["produce_p99_ratio", LIMIT, "≤ 1.5", "1.9 (1.8–2)", "**no**"],
    ]


def test_a_later_run_replaces_the_benches_it_has(tmp_path: Path) -> None:
    first, second = result_of("produce-1k"), result_of("produce-100b")
    write_json(tmp_path / "a.json", [first, second], {})
    again = BenchResult(second.bench, {"barnabas": [{"mb_per_s": 7.0, "cpu_s_per_gb": 7.0}]})
    write_json(tmp_path / "b.json", [again], {})
    read = read_json([tmp_path / "a.json", tmp_path / "b.json"], BENCHES)
    assert [result.rounds for result in read] == [first.rounds, again.rounds]


@pytest.mark.parametrize(("codec", "shrinks"), [("none", False), ("zstd", True), ("lz4", True)])
def test_batches_made_beforehand_are_legal(codec: str, shrinks: bool) -> None:
    made, count = batch_of(1000, 16384, codec, compressible=codec != "none")
    [batch] = iter_batches(memoryview(bytearray(made)))
    assert [len(record.value or b"") for record in batch.records()] == [1000] * count
    assert (len(made) < 16384 * 0.6) == shrinks


def test_the_ceiling_keeps_batches_and_opens_them_and_the_sink_counts_them(tmp_path: Path) -> None:
    for codec in ("none", "lz4", "zstd"):
        made, count = batch_of(1000, 16384, codec, compressible=codec != "none")
        kept, sunk = (kind(tmp_path / f"{codec}-{kind.__name__}") for kind in (PartitionFile, Sink))
        for number in range(2):
            assert [file.append(memoryview(bytearray(made))) for file in (kept, sunk)] == [number * count] * 2
        assert (kept.path.stat().st_size, sunk.path.stat().st_size) == (2 * len(made), 0)


def test_the_ceiling_opens_what_says_that_it_is_compressed(tmp_path: Path) -> None:
    made, _ = batch_of(1000, 16384, "none", compressible=False)
    lying = bytearray(made)
    lying[CODEC_POSITION] |= Compression.LZ4
    write_crc(memoryview(lying))
    with pytest.raises(KafkaError):
        PartitionFile(tmp_path / "log").append(memoryview(lying))


class Topics:
    """A target that notes what is asked of it."""

    bootstrap = "nowhere:1"
    pids = ()

    def __init__(self) -> None:
        self.asked: list[str] = []

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        self.asked.append(f"create {partitions}")

    def delete_topic(self, topic: str) -> None:
        self.asked.append("delete")


@pytest.mark.parametrize(("acks", "waits"), [(1, []), (-1, ["record in each of 6"])])
def test_replicas_have_begun_before_what_all_acknowledge_is_timed(
    acks: int, waits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Topics()

    def wait(bootstrap: str, topic: str, partitions: int) -> None:
        target.asked.append(f"record in each of {partitions}")

    def produce(driver: str, **options: Any) -> dict[str, float]:
        target.asked.append(driver)
        return {"records": 1.0}

    monkeypatch.setattr(throughput, "replicate_first_records", wait)
    monkeypatch.setattr(throughput.load, "run", produce)
    throughput.librdkafka_bench("one", "", size=1000, partitions=6, acks=acks).measure(Run(cast(Any, target), 1, 0))
    assert target.asked == ["create 6", *waits, "produce", "delete"]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_latency_is_taken_once_a_record_has_the_same_acknowledgement(
    acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []

    def first(bootstrap: str, topic: str, *, acks: int) -> None:
        waited.append(acks)

    def connect_after(bootstrap: str) -> None:
        raise ConnectionError(bootstrap)

    monkeypatch.setattr(single, "first_acknowledgement", first)
    monkeypatch.setattr(single, "connect", connect_after)
    with pytest.raises(ConnectionError):
        single.latencies("nowhere:1", "topic", seconds=1, acks=acks)
    assert waited == [acks]


@pytest.mark.verify
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["produce-1k", "fetch-1k", "single-requests", "latency"])
def test_ours_and_the_ceiling_side_by_side(name: str, tmp_path: Path) -> None:
    result = run_bench(BENCHES[name], ["barnabas", "ceiling"], Plan(tmp_path, 0.5, 1, warmup=0))
    assert set(result.rounds) == {"barnabas", "ceiling"}
    for rounds in result.rounds.values():
        for figure in result.bench.figures:
            assert rounds[0][figure] > 0 or figure.startswith("cpu"), (figure, rounds)


@pytest.mark.verify
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        *(
            "acks-all-page-cache",
            "transactions-32-16",
            "transaction-commit",
            "transaction-produce",
            "transaction-fetch",
        ),
        *("tls-produce-1k", "tls-fetch-1k", "rules-10000", "metrics-cost", "share-group-100b"),
    ],
)
def test_ours_alone(name: str, tmp_path: Path) -> None:
    result = run_bench(BENCHES[name], ["barnabas"], Plan(tmp_path, 0.5, 1, warmup=0))
    (figures,) = result.rounds["barnabas"]
    assert all(figures[figure] > 0 for figure in result.bench.figures), figures


@pytest.mark.verify
@pytest.mark.timeout(120)
def test_ours_starts_fast_and_small(tmp_path: Path) -> None:
    result = run_bench(BENCHES["start"], ["barnabas"], Plan(tmp_path, 0.5, 1))
    assert result.spread("barnabas", "first_ack_s").median < 5
    assert result.spread("barnabas", "idle_mb").median < 120
