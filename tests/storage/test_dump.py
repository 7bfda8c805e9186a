"""The dump engine: a second reading of every file, by `construct`, agrees with the classes that write them."""

from dataclasses import replace

import pytest
from tests.storage.crash_world import NOW_MS, SMALL, TP, make_manager, new_disk
from tests.storage.lanes import load, shut_down

from barnabas.protocol.record_batch import ControlType, RecordBatchBuilder, control_batch
from barnabas.simulation.disk import SimDisk
from barnabas.storage.dump import dump_file, verify_indexes
from barnabas.storage.log import Log
from barnabas.storage.log_validator import COORDINATOR_RULES

FOLDER = f"/data/{TP}"


@pytest.fixture
def disk() -> SimDisk:
    disk = new_disk()
    manager = make_manager(disk, config=replace(SMALL, segment_bytes=900))
    manager.open_dirs()
    load(manager)
    fill(manager.creation.get_or_create_log(TP, is_new=True))
    shut_down(manager)
    return disk


def fill(log: Log) -> None:
    for number in range(10):
        builder = RecordBatchBuilder(producer_id=7, producer_epoch=1, base_sequence=number * 2)
        builder.append(b"key", b"value", [("name", b"x")], NOW_MS + number)
        builder.append(None, None, (), NOW_MS + number)
        log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=3)
    transaction = RecordBatchBuilder(producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    transaction.append(b"k", b"aborted", (), NOW_MS + 50)
    log.append_as_leader(memoryview(bytearray(transaction.build())), leader_epoch=3)
    marker = control_batch(
        ControlType.ABORT, producer_id=8, producer_epoch=0, coordinator_epoch=2, timestamp=NOW_MS + 51
    )
    log.append_as_leader(memoryview(bytearray(marker)), leader_epoch=3, rules=COORDINATOR_RULES)


def files(disk: SimDisk, suffix: str) -> list[str]:
    return [path for path in disk.tree() if path.startswith(FOLDER) and path.endswith(suffix)]


def lines(disk: SimDisk, suffix: str, **options: bool) -> list[str]:
    return [str(entry) for path in files(disk, suffix) for entry in dump_file(disk, path, **options)]


def test_a_batch_is_one_line_in_kafkas_words(disk: SimDisk) -> None:
    first = lines(disk, ".log")[0]
    assert first.startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 lastSequence: 1 producerId: 7 producerEpoch: 1 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false"
    )
    assert first.endswith("isvalid: true")
    assert f"position: 0 CreateTime: {NOW_MS} size:" in first


def test_records_are_lines_below_their_batch(disk: SimDisk) -> None:
    records = [line for line in lines(disk, ".log", deep_iteration=True) if line.startswith("| ")]
    assert len(records) == 22
    assert records[0] == f"| offset: 0 CreateTime: {NOW_MS} keySize: 3 valueSize: 5 sequence: 0 headerKeys: [name]"
    assert "endTxnMarker: ABORT" in records[-1]
    printed = lines(disk, ".log", print_data=True)
    assert any(line.endswith("key: key payload: value") for line in printed)


def test_indexes_say_what_the_log_says(disk: SimDisk) -> None:
    assert lines(disk, ".index")
    assert lines(disk, ".timeindex")
    for path in files(disk, ".log"):
        assert list(verify_indexes(disk, path)) == []


def test_the_other_files(disk: SimDisk) -> None:
    newest = files(disk, ".snapshot")[-1:]
    text = "\n".join(str(entry) for path in newest for entry in dump_file(disk, path))
    assert "producerId: 7 producerEpoch: 1 lastSequence: 19 lastOffset: 19" in text
    (aborted,) = lines(disk, ".txnindex")
    assert aborted == "version: 0 producerId: 8 firstOffset: 20 lastOffset: 21 lastStableOffset: 22"
    assert lines(disk, "leader-epoch-checkpoint") == ["0", "1", "3 0"]
    with pytest.raises(ValueError, match="not the name of a file"):
        list(dump_file(disk, "/data/.lock"))


def test_damage_is_reported_where_it_is(disk: SimDisk) -> None:
    path = files(disk, ".log")[0]
    size = len(disk.tree()[path])
    disk.cut(path, size - 1)
    torn = [line for line in lines(disk, ".log") if ", the end of the file: a batch of " in line]
    assert len(torn) == 1 and "its header reads baseOffset: " in torn[0]
    disk.overwrite(path, 160, b"\xff\xff")
    assert any(line.endswith("isvalid: false") for line in lines(disk, ".log"))
    disk.overwrite(path, 8, b"\xff\xff\xff\xff")
    first, second = lines(disk, ".log")[:2]
    found = "Found 180 invalid bytes at position 0, followed by further batches: invalid entry of length -1"
    assert first.startswith(found)
    assert second.startswith("baseOffset: 4 ")


def test_an_index_that_lies_is_found(disk: SimDisk) -> None:
    path = files(disk, ".index")[0]
    disk.overwrite(path, 0, (1).to_bytes(4, "big") + (77).to_bytes(4, "big"))
    problems = [str(entry) for entry in verify_indexes(disk, path.replace(".index", ".log"))]
    assert problems[0] == "index offset: 1, log offset: None"
