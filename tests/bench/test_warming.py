"""A rival is compared when it is warm: its figures do not get better any more, or else a reader is told."""

import argparse
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from bench import runner
from bench.__main__ import python_target
from bench.bench import BROKERS, LIMIT, RIVAL, STEPS, Bench, Figures, Goal, Run
from bench.catalogue import BENCHES
from bench.compaction import MAX_WARM_PASSES, DirtyBroker, warm_up
from bench.published import markdown
from bench.report import print_result, read_json, write_json
from bench.runner import Plan, run_bench
from bench.warming import MAX_WARMUP_S, MAX_WARMUPS, WarmUp, WarmUpResult

RATE = {"mb_per_s": "higher"}
BOTH = {"mb_per_s": "higher", "p50_ms": "lower"}
COLD = {
    *("kraft-idle", "kraft-restart", "many-partitions"),
    *("start", "start-10000", "group-restart", "transactional-ids", "cleaning-latency", "cluster-idle"),
    "cluster-catch-up",
    *(f"cluster-{what}-{width}" for what in ("restart", "controller") for width in (1000, 10_000)),
}


class Clock:
    """A round takes as long as somebody says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def rounds_of(warming: WarmUp, rounds: Sequence[Mapping[str, float]]) -> int:
    """How many of these rounds of the rival do not count."""
    for done, figures in enumerate(rounds):
        if warming.is_over():
            return done
        warming.add(figures)
    assert warming.is_over()
    return len(rounds)


@pytest.mark.parametrize(
    ("figures", "rounds"),
    [
        ([100, 100], 2),
        ([100, 120, 140, 141, 150], 4),
        ([100, 90, 140], 2),
        ([1.1**number for number in range(30)], MAX_WARMUPS),
    ],
)
def test_a_rival_is_warm_when_its_figure_stops_getting_better(figures: list[float], rounds: int) -> None:
    assert rounds_of(WarmUp(RATE, 1), [{"mb_per_s": figure} for figure in figures]) == rounds
    assert rounds_of(WarmUp({"p50_ms": "lower"}, 1), [{"p50_ms": 1 / figure} for figure in figures]) == rounds


def test_a_rival_goes_on_warming_while_any_of_its_figures_gets_better() -> None:
    rounds = [{"mb_per_s": 100.0, "p50_ms": p50} for p50 in (9.0, 5.0, 3.0, 2.0, 2.0, 1.0)]
    warming = WarmUp(BOTH, 1)
    assert rounds_of(warming, rounds) == 5 and not warming.result().rising
    assert rounds_of(WarmUp(RATE, 1), rounds) == 2


def test_a_figure_of_nothing_is_as_good_as_it_gets() -> None:
    assert rounds_of(WarmUp({"p50_ms": "lower"}, 1), [{"p50_ms": p50} for p50 in (1.0, 0.0, 0.0)]) == 3


def test_so_many_rounds_as_asked_for_warm_up_at_least() -> None:
    assert rounds_of(WarmUp(RATE, 4), [{"mb_per_s": 100.0}] * 6) == 4
    assert rounds_of(WarmUp(RATE, 12), [{"mb_per_s": 1.1**number} for number in range(20)]) == 12
    assert rounds_of(WarmUp({}, 2), [{}] * 6) == 2, "without a rival"


def test_nothing_warms_up_where_that_is_asked_for() -> None:
    warming = WarmUp(RATE, 0)
    assert warming.is_over() and warming.result().rising == ("mb_per_s",), "no round has been measured"


def test_warming_up_is_bounded_in_time_and_says_what_still_got_better() -> None:
    clock = Clock()
    warming = WarmUp(BOTH, 1, clock=clock)
    rounds = 0
    while not warming.is_over():
        rounds += 1
        clock.now += MAX_WARMUP_S / 3 + 1
        warming.add({"mb_per_s": 1.1**rounds, "p50_ms": 5.0})
    assert warming.result() == WarmUpResult(3, clock.now - 1000, ("mb_per_s",))
    asked = WarmUp(RATE, 2, clock=clock)
    for number in range(2):
        assert not asked.is_over()
        clock.now += MAX_WARMUP_S
        asked.add({"mb_per_s": 1.1**number})
    assert asked.is_over()


def bench(**other: Any) -> Bench:
    figures = {"mb_per_s": "higher", "cpu_s_per_gb": "lower", "p50_ms": "lower"}
    return replace(Bench("one", "about it", figures, lambda run: {}, targets=BROKERS), **other)


def test_every_figure_that_is_compared_has_to_be_warm_by_default() -> None:
    others = (Goal("p50_ms", "ceiling", 1), Goal("mb_per_s", "ceiling", 1), Goal("mb_per_s", LIMIT, 1))
    goals = (Goal("p50_ms", RIVAL, 1), Goal("cpu_s_per_gb", RIVAL, 1), *others)
    assert bench(goals=goals).warming_figures == {"p50_ms": "lower", "cpu_s_per_gb": "lower"}
    assert bench().warming_figures == {"mb_per_s": "higher"}
    assert bench(goals=others).warming_figures == {"mb_per_s": "higher"}
    assert bench(goals=goals, warm_by=("mb_per_s",)).warming_figures == {"mb_per_s": "higher"}
    assert bench(goals=goals, cold="it is").warming_figures == {}
    assert bench(goals=goals, targets=("barnabas",)).warming_figures == {}


def test_no_bench_with_a_rival_is_without_a_figure_to_warm_it_by_or_a_reason() -> None:
    with_a_rival = {name for name, one in BENCHES.items() if RIVAL in one.targets}
    assert {name for name in with_a_rival if not BENCHES[name].warming_figures} == COLD
    assert {name for name, one in BENCHES.items() if one.cold} == COLD
    assert not [name for name in COLD if BENCHES[name].warm_by]
    in_each_round = {name for name in with_a_rival - COLD if not BENCHES[name].started}
    assert in_each_round == {f"cleaning-{size}-{share}" for size in ("1k", "100b") for share in (90, 10)}
    assert not [name for name in with_a_rival - COLD - in_each_round if BENCHES[name].warmup == 0]


def test_each_step_of_the_connections_has_to_be_warm() -> None:
    assert set(BENCHES["connections"].warming_figures) == {f"requests_per_s_{count}" for count in STEPS}


class Idle:
    """A target that does nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> None:
        """Nothing to do."""

    def remove(self) -> None:
        """Nothing to do."""


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "make_target", lambda name, *others, **options: Idle(name))


def rising_until(number: int) -> Bench:
    """Ours is steady, the rival gets better until the round of this number."""

    def measure(run: Run) -> Figures:
        speed = 1.1 ** min(run.number, number) if run.target.name == RIVAL else 5.0
        return {"mb_per_s": speed, "cpu_s_per_gb": float(run.number)}

    figures = {"mb_per_s": "higher", "cpu_s_per_gb": "lower"}
    return Bench("one", "about it", figures, measure, targets=BROKERS, goals=(Goal("mb_per_s", RIVAL, 1.0),))


@pytest.mark.usefixtures("idle")
def test_rounds_count_from_when_the_rival_is_warm(tmp_path: Path) -> None:
    result = run_bench(rising_until(3), BROKERS, Plan(tmp_path, 1, rounds=2))
    assert [figures["cpu_s_per_gb"] for figures in result.rounds["barnabas"]] == [5, 6]
    assert result.warm_up is not None and (result.warm_up.rounds, result.warm_up.rising) == (5, ())
    assert [row[-1] for row in result.goal_rows()] == ["yes"]
    assert "About it. Rounds: 2. Warm-up: 5." in markdown([result])


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize(("warmup", "words"), [(1, "10, and Kafka still got better in mb_per_s"), (0, "none")])
def test_a_reader_sees_that_a_rival_was_not_warm(
    warmup: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_bench(rising_until(99), BROKERS, Plan(tmp_path, 1, rounds=2, warmup=warmup))
    assert [row[-1] for row in result.goal_rows()] == ["yes, Kafka not warm"]
    assert f"Rounds: 2. Warm-up: {words}." in markdown([result])
    print_result(result)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Warm-up: {words}." in shown and "yes, Kafka not warm" in shown
    write_json(tmp_path / "run.json", [result], {})
    [read] = read_json([tmp_path / "run.json"], {"one": result.bench})
    assert read.run is not None and replace(read, run=None) == result
    write_json(tmp_path / "again.json", [replace(result, warm_up=None)], {})
    [again] = read_json([tmp_path / "run.json", tmp_path / "again.json"], {"one": result.bench})
    assert again.warm_up is None, "the later run says nothing of it"


@pytest.mark.usefixtures("idle")
def test_a_bench_of_one_broker_has_a_column_for_each_interpreter(tmp_path: Path) -> None:
    name, path = python_target(sys.executable)
    assert name == f"barnabas-{platform.python_version()}"
    plan = Plan(tmp_path, 1, rounds=1, pythons={name: path})
    result = run_bench(rising_until(3), BROKERS, plan)
    assert result.header() == ["figure", *BROKERS, name, "barnabas ÷ kafka", f"barnabas ÷ {name}"]
    assert set(run_bench(rising_until(3), ["kafka"], plan).rounds) == {"kafka"}
    assert set(run_bench(replace(rising_until(3), brokers=3), BROKERS, plan).rounds) == set(BROKERS)


def test_an_interpreter_without_barnabas_is_rejected(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    for path in (bare, tmp_path / "absent"):
        with pytest.raises(argparse.ArgumentTypeError, match="Barnabas installed"):
            python_target(str(path))


@pytest.mark.usefixtures("idle")
def test_without_a_rival_the_rounds_of_the_plan_warm_up(tmp_path: Path) -> None:
    result = run_bench(rising_until(99), ["barnabas"], Plan(tmp_path, 1, rounds=1, warmup=2))
    assert result.warm_up is not None and (result.warm_up.rounds, result.warm_up.rising) == (2, ())


@pytest.mark.usefixtures("idle")
def test_a_reader_sees_why_a_rival_is_cold(tmp_path: Path) -> None:
    cold = replace(rising_until(99), cold="a start is measured")
    result = run_bench(cold, BROKERS, Plan(tmp_path, 1, rounds=1, warmup=2))
    assert "Rounds: 1. Warm-up: 2. Kafka is cold: a start is measured." in markdown([result])
    assert [row[-1] for row in result.goal_rows()] == ["yes"]
    alone = run_bench(cold, ["barnabas"], Plan(tmp_path, 1, rounds=1))
    assert "Kafka" not in markdown([alone])


@pytest.mark.usefixtures("idle")
def test_a_round_in_which_a_rival_was_not_warm_stands_for_all(tmp_path: Path) -> None:
    def measure(run: Run) -> Figures:
        rising = ("mb_per_s",) if run.number == 1 and run.target.name == RIVAL else ()
        run.warm_up = WarmUpResult(run.number + 1, 1.0, rising)
        return {"mb_per_s": 5.0}

    fresh = replace(rising_until(0), measure=measure, figures=RATE, started=False)
    result = run_bench(fresh, BROKERS, Plan(tmp_path, 1, rounds=3, warmup=0))
    assert result.warm_up == WarmUpResult(2, 1.0, ("mb_per_s",))


class Cleaner:
    """A broker whose passes have these speeds."""

    def __init__(self, speeds: Sequence[float]) -> None:
        self._speeds = iter(speeds)
        self.cleaned: list[str] = []

    def clean(self, topic: str) -> float:
        self.cleaned.append(topic)
        return next(self._speeds)


@pytest.mark.parametrize(
    ("speeds", "passes", "rising"),
    [([50e6, 90e6, 91e6, 99e6], 3, ()), ([1.5**number for number in range(9)], MAX_WARM_PASSES, ("mb_per_s",))],
)
def test_copies_of_a_log_are_cleaned_until_that_gets_no_faster(
    speeds: list[float], passes: int, rising: tuple[str, ...]
) -> None:
    cleaner, copies = Cleaner(speeds), [f"warm-{number}" for number in range(MAX_WARM_PASSES)]
    ended = warm_up(cast(DirtyBroker, cleaner), copies)
    assert cleaner.cleaned == copies[:passes]
    assert (ended.rounds, ended.rising) == (passes, rising)
