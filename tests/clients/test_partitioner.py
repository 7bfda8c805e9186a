"""Partitions as Java's clients choose them."""

from __future__ import annotations

import random

import pytest

from barnabas.clients.partitioner import DefaultPartitioner, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_values_of_kafkas_own_test(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_of_key(key, 7) == (expected & 0x7FFFFFFF) % 7


def test_keys_of_any_length_are_hashed() -> None:
    hashes = {murmur2(b"x" * length) for length in range(64)}
    assert len(hashes) == 64
    assert all(0 <= partition_of_key(b"k%d" % i, 3) < 3 for i in range(1000))


def test_keyless_records_stick_until_a_batch_is_full_and_then_spread() -> None:
    partitioner = DefaultPartitioner(1000, random.Random(1))
    chosen = []
    for _ in range(300):
        partition = partitioner.partition("t", None, 4, (0, 1, 2, 3))
        chosen.append(partition)
        partitioner.appended("t", partition, 100)
    runs = [chosen[i : i + 10] for i in range(0, 300, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert set(chosen) == {0, 1, 2, 3}


def test_partitions_without_leader_are_avoided_while_others_have_one() -> None:
    partitioner = DefaultPartitioner(1, random.Random(1))
    for _ in range(50):
        partition = partitioner.partition("t", None, 4, (2,))
        partitioner.appended("t", partition, 100)
        assert partition == 2
    assert partitioner.partition("u", None, 4, ()) in range(4)
