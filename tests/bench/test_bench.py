"""The bench itself: ratios and tables are right, the load is legal, and every load gives sane figures."""

import struct
from pathlib import Path

import pytest
from tests.bench.catalogue import BENCHES
from tests.bench.plot import growth_plot
from tests.bench.report import BenchResult, Spread, markdown
from tests.bench.runner import run_bench
from tests.bench.single import Answers, one_record_batch, response_layout

from barnabas.protocol.record_batch import iter_batches


def result_of(name: str) -> BenchResult:
    result = BenchResult(BENCHES[name])
    for ours, kafka in ((100.0, 50.0), (90.0, 60.0), (120.0, 40.0)):
        result.add("ours", {"mb_per_s": ours, "cpu_s_per_gb": 1.0})
        result.add("kafka", {"mb_per_s": kafka, "cpu_s_per_gb": 4.0})
    return result


def test_ratios_are_taken_round_by_round() -> None:
    result = result_of("produce-1k")
    assert result.ratio("mb_per_s", "kafka") == Spread(2.0, 1.5, 3.0)
    assert result.ratio("mb_per_s", "ceiling") is None
    text = markdown([result])
    assert "| mb_per_s (higher is better) | 100 (90–120) | 50 (40–60) | 2 (1.5–3) |" in text
    assert "| cpu_s_per_gb (lower is better) | 1 (1–1) | 4 (4–4) | 0.25 (0.25–0.25) |" in text


def test_the_plot_has_a_line_for_each_target() -> None:
    result = BenchResult(BENCHES["growth-topics"])
    for target, factor in (("ours", 1), ("kafka", 5)):
        result.add(target, dict.fromkeys(result.bench.figures, factor * 10.0))
    picture = growth_plot([result])
    assert picture.count("stroke-width") == 2
    assert "ours, topics" in picture and "kafka, topics" in picture


def test_the_batch_of_the_load_is_legal() -> None:
    [batch] = iter_batches(memoryview(bytearray(one_record_batch(b"x" * 100, 1_700_000_000_000))))
    [record] = batch.records()
    assert (record.key, bytes(record.value), record.timestamp) == (None, b"x" * 100, 1_700_000_000_000)


def test_an_error_in_any_answer_is_seen() -> None:
    size, error_at = response_layout("topic")
    good = bytearray(size)
    struct.pack_into(">i", good, 0, size - 4)
    bad = bytearray(good)
    struct.pack_into(">h", bad, error_at, 3)
    answers = Answers("topic")
    assert answers.take(bytes(good + good[:10])) == 1
    assert answers.take(bytes(good[10:])) == 1
    with pytest.raises(RuntimeError, match="error"):
        answers.take(bytes(good + bad))


@pytest.mark.verify
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["produce-1k", "fetch-1k", "single-requests", "latency"])
def test_ours_and_the_ceiling_side_by_side(name: str, tmp_path: Path) -> None:
    result = run_bench(BENCHES[name], ["ours", "ceiling"], folder=tmp_path, seconds=0.5, rounds=1, warmup=0)
    assert set(result.rounds) == {"ours", "ceiling"}
    for rounds in result.rounds.values():
        for figure in result.bench.figures:
            assert rounds[0][figure] > 0 or figure.startswith("cpu"), (figure, rounds)


@pytest.mark.verify
@pytest.mark.timeout(120)
def test_ours_starts_fast_and_small(tmp_path: Path) -> None:
    result = run_bench(BENCHES["start"], ["ours"], folder=tmp_path, seconds=0.5, rounds=1)
    assert result.spread("ours", "first_ack_s").median < 5
    assert result.spread("ours", "idle_mb").median < 120
