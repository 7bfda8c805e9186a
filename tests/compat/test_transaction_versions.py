"""The APIs of transactions in every version: Apache Kafka and this broker give the same answers, field by field.

Both are led through the same life of a transactional id, with every mistake on the way that a client can make. What
they made up themselves, producer ids, is compared by whose it is; while a transaction ends both may say so, for a
moment, and are asked again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.answers import plain
from tests.compat.test_group_versions import TOPIC, prepared
from tests.kafka import KafkaServer
from tests.server.config.config_client import ConfigClient
from tests.server.data_plane import batch, produce

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

NEWEST = {
    "3.9.1": {
        ApiKey.INIT_PRODUCER_ID: 5,
        ApiKey.ADD_PARTITIONS_TO_TXN: 5,
        ApiKey.ADD_OFFSETS_TO_TXN: 4,
        ApiKey.TXN_OFFSET_COMMIT: 4,
        ApiKey.END_TXN: 4,
        ApiKey.PRODUCE: 11,
        ApiKey.LIST_TRANSACTIONS: 1,
        ApiKey.WRITE_TXN_MARKERS: 1,
    },
    "4.4.0": {
        ApiKey.INIT_PRODUCER_ID: 5,
        ApiKey.ADD_PARTITIONS_TO_TXN: 5,
        ApiKey.ADD_OFFSETS_TO_TXN: 4,
        ApiKey.TXN_OFFSET_COMMIT: 5,
        ApiKey.END_TXN: 5,
        ApiKey.PRODUCE: 12,
        ApiKey.LIST_TRANSACTIONS: 2,
        ApiKey.WRITE_TXN_MARKERS: 1,
    },
}
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "8"}
OLDEST = {ApiKey.WRITE_TXN_MARKERS: 1}
FIRST_OF_BROKERS = 4
"""Of AddPartitionsToTxn."""
UNTOLD = {"throttle_time_ms", "error_message", "transaction_start_time_ms", "last_timestamp"}
"""Times, and words for people."""
ASKED_AGAIN = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
TOO_LONG_MS = 900_001


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BarnabasServer(tmp_path_factory.mktemp("ours"), properties=SETTINGS) as server:
        yield coordinated(server.bootstrap)


@pytest.fixture(scope="module", params=["3.9.1", "4.4.0"])
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("theirs")
    with KafkaServer(folder, version=request.param, properties=SETTINGS) as server:
        yield request.param, coordinated(server.bootstrap)


def coordinated(bootstrap: str) -> str:
    """There is a coordinator for every transactional id, too, and no producer will be the one with the id 0."""
    prepared(bootstrap)
    names = [f"x{number}" for number in range(1000)]
    with closing(ConfigClient(bootstrap)) as client:
        deadline = time.monotonic() + 60
        while not _is_coordinated(client, names):
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        while client.call(ApiKey.INIT_PRODUCER_ID, 1, request).error_code:
            assert time.monotonic() < deadline, "no producer id"
            time.sleep(0.1)
    return bootstrap


def _is_coordinated(client: ConfigClient, names: list[str]) -> bool:
    if client.call(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(key="x", key_type=1)).error_code:
        return False
    request = DescribeTransactionsRequest(transactional_ids=names)
    described = client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
    return all(one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND for one in described)


class TransactionLife:
    """A life of a transactional id at one broker; `told` is what was asked and answered."""

    def __init__(self, client: ConfigClient, transactional_id: str, version: int, kafka: str) -> None:
        self._client = client
        self.id = transactional_id
        self._version = version
        self._newest = NEWEST[kafka]
        self.is_newest = kafka == "4.4.0"
        """Coordinators of groups were written anew: in a group that is not there, 3.9.1 missed the member first."""
        self.told: list[tuple[str, object]] = []
        self._producers: dict[int, str] = {}
        self.producer_id, self.epoch = -1, -1
        self.sequence = 0

    @property
    def is_second_protocol(self) -> bool:
        """Whether each end gives the next epoch."""
        return min(self._version, self._newest[ApiKey.END_TXN]) >= 5

    def version_of(self, key: ApiKey) -> int:
        """What is tried, or the nearest there is of this API."""
        return max(min(self._version, self._newest.get(key, 0)), OLDEST.get(key, 0))

    def call(self, what: str, key: ApiKey, request: Any, version: int | None = None) -> Any:
        """Ask until no transaction is about to end, and there are producer ids to be given out."""
        version = self.version_of(key) if version is None else version
        deadline = time.monotonic() + 60
        while True:
            answer = self._client.call(key, version, request)
            said = plain(answer, UNTOLD)
            if not ASKED_AGAIN.intersection(_codes(said)):
                break
            assert time.monotonic() < deadline, what
            time.sleep(0.01)
        self.told.append((f"{what} v{version}", self._named(said)))
        return answer

    def _named(self, value: object) -> object:
        """Without what a broker made up."""
        if isinstance(value, dict):
            return {
                name: self._producers.setdefault(part, f"producer {len(self._producers)}")
                if name == "producer_id" and isinstance(part, int) and part > 0
                else self._named(part)
                for name, part in value.items()
            }
        return [self._named(part) for part in value] if isinstance(value, list) else value

    def init(self, what: str, **fields: Any) -> None:
        """InitProducerId; who the producer is from now on."""
        wanted = {"transactional_id": self.id, "transaction_timeout_ms": 60_000, **fields}
        answer = self.call(what, ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(**wanted))
        if not answer.error_code and wanted["transactional_id"]:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def init_again(self, what: str, epoch: int) -> None:
        """InitProducerId of a producer that says who it is (from version 3 on)."""
        if self.version_of(ApiKey.INIT_PRODUCER_ID) >= 3:
            self.init(what, producer_id=self.producer_id, producer_epoch=epoch)

    def _who(self, **fields: Any) -> dict[str, Any]:
        who = {"transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch}
        return {**who, **fields}

    def add(self, what: str, *places: tuple[str, int], verify_only: bool = False, **fields: Any) -> None:
        """AddPartitionsToTxn in the shape of its version."""
        version, who = self.version_of(ApiKey.ADD_PARTITIONS_TO_TXN), self._who(**fields)
        topics = [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in places or [(TOPIC, 0)]]
        if version >= FIRST_OF_BROKERS:
            one = AddPartitionsToTxnTransaction(**who, verify_only=verify_only, topics=topics)
            request = AddPartitionsToTxnRequest(transactions=[one])
        else:
            old = {f"v3_and_below_{name}": value for name, value in who.items()}
            request = AddPartitionsToTxnRequest(**old, v3_and_below_topics=topics)
        self.call(what, ApiKey.ADD_PARTITIONS_TO_TXN, request)

    def add_offsets(self, what: str, **fields: Any) -> None:
        request = AddOffsetsToTxnRequest(**{"group_id": self.id, **self._who(**fields)})
        self.call(what, ApiKey.ADD_OFFSETS_TO_TXN, request)

    def commit_offsets(self, what: str, topic: str = TOPIC, **fields: Any) -> None:
        places = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata="")
            for index in (0, 7)
        ]
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=places)]
        request = TxnOffsetCommitRequest(**{"group_id": self.id, "topics": topics, **self._who(**fields)})
        self.call(what, ApiKey.TXN_OFFSET_COMMIT, request)

    def produce(self, what: str) -> None:
        """A batch of one record; older versions of Produce know no transactions."""
        who: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequence,
        }
        records = batch(b"v", timestamp=int(time.time() * 1000), is_transactional=True, **who)
        version = 12 if self.is_second_protocol else max(3, min(11, self._version + 6))
        request = produce(records, topic=TOPIC, acks=-1, transactional_id=self.id)
        answer = self._client.call(ApiKey.PRODUCE, version, request)
        self.told.append((what, answer.responses[0].partition_responses[0].error_code))
        self.sequence += 1

    def end(self, what: str, *, is_commit: bool = True, **fields: Any) -> None:
        """EndTxn; with the second protocol it says who the producer is from now on."""
        answer = self.call(what, ApiKey.END_TXN, EndTxnRequest(**self._who(**fields), committed=is_commit))
        if not answer.error_code and self.is_second_protocol:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def settle(self) -> None:
        """Return when no transaction of the id is about to end."""
        request = DescribeTransactionsRequest(transactional_ids=[self.id])
        deadline = time.monotonic() + 60
        while True:
            (found,) = self._client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
            if not found.transaction_state.startswith("Prepare"):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.01)

    def look(self, what: str) -> None:
        """Everything that can be seen of the id, and of none."""
        ids = DescribeTransactionsRequest(transactional_ids=[self.id, "nobody", ""])
        self.call(f"describe {what}", ApiKey.DESCRIBE_TRANSACTIONS, ids)
        listed = ListTransactionsRequest(producer_id_filters=[self.producer_id])
        self.call(f"list {what}", ApiKey.LIST_TRANSACTIONS, listed)
        topics = [TopicRequest(name=name, partition_indexes=[0, 7]) for name in (TOPIC, "unknown")]
        request = DescribeProducersRequest(topics=topics)
        answer = self._client.call(ApiKey.DESCRIBE_PRODUCERS, 0, request)
        for topic in answer.topics:
            for partition in topic.partitions:
                mine = [one for one in partition.active_producers if one.producer_id == self.producer_id]
                for one in mine:  # offsets are those of all lives before
                    one.current_txn_start_offset = min(0, one.current_txn_start_offset)
                partition.active_producers = mine
        self.told.append((f"producers {what}", self._named(plain(answer, UNTOLD))))

    def mark(self, what: str, *places: tuple[str, int], epoch: int) -> None:
        """WriteTxnMarkers, as an operator sends it."""
        topics = [WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in places]
        marker = WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=topics,
            coordinator_epoch=0,
        )
        self.call(what, ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]))


def _codes(said: object) -> Iterator[int]:
    if isinstance(said, dict):
        for name, part in said.items():
            if name.endswith("error_code"):
                yield part
            else:
                yield from _codes(part)
    elif isinstance(said, list):
        for part in said:
            yield from _codes(part)


def mistakes(life: TransactionLife, when: str) -> None:
    """What is refused at any time, by all that a producer asks for."""
    wrong: dict[str, dict[str, Any]] = {
        "of another producer": {"producer_id": life.producer_id + 1_000_000},
        "of an older epoch": {"producer_epoch": life.epoch - 1},
        "of a newer epoch": {"producer_epoch": life.epoch + 1},
        "of nobody": {"transactional_id": "nobody"},
        "without an id": {"transactional_id": ""},
    }
    for whose, fields in wrong.items():
        life.add(f"add {whose} {when}", **fields)
        life.add_offsets(f"add offsets {whose} {when}", **fields)
        life.end(f"commit {whose} {when}", **fields)
        life.end(f"abort {whose} {when}", is_commit=False, **fields)


def live(life: TransactionLife) -> None:
    """From the first mistake to the last transaction."""
    life.look("before")
    life.init("init without time", transaction_timeout_ms=0)
    life.init("init with too much time", transaction_timeout_ms=TOO_LONG_MS)
    life.init("init without an id", transactional_id="")
    life.init("init of an idempotent producer", transactional_id=None)
    life.init("init")
    life.look("empty")
    life.end("commit nothing")
    life.end("abort nothing", is_commit=False)
    life.init("init once more")
    mistakes(life, "before")
    life.add("add what is not there", ("unknown", 0), (TOPIC, 0))
    life.add("add a partition that is not there", (TOPIC, 7), (TOPIC, 0))
    life.add("verify", verify_only=True)
    life.add("add")
    life.add("add again")
    life.add("verify what is added", verify_only=True)
    life.add("verify another", (TOPIC, 1), verify_only=True)
    life.produce("produce")
    life.look("ongoing")
    mistakes(life, "meanwhile")
    life.add_offsets("add offsets of no group", group_id="")
    life.add_offsets("add offsets")
    life.commit_offsets("offsets of nobody's topic", "unknown")
    life.commit_offsets("offsets of no group", group_id="")
    if life.version_of(ApiKey.TXN_OFFSET_COMMIT) >= 3:
        if life.is_newest:
            life.commit_offsets(
                "offsets of a member that is not there", member_id="somebody", generation_id_or_member_epoch=4
            )
        life.commit_offsets("offsets of an instance that is not there", group_instance_id="somebody")
    life.commit_offsets("offsets")
    life.look("with offsets")
    life.end("commit")
    life.settle()
    life.look("committed")
    if not life.is_second_protocol:
        life.end("commit again")
        life.end("abort what is committed", is_commit=False)
    life.add("begin again")
    life.produce("produce again")
    life.end("abort", is_commit=False)
    life.settle()
    life.look("aborted")
    if not life.is_second_protocol:
        life.end("abort again", is_commit=False)
        life.end("commit what is aborted")
    fence(life)


def fence(life: TransactionLife) -> None:
    """Somebody else takes over, and operators write markers."""
    life.init_again("say who one is", life.epoch)
    life.init_again("say who one was", life.epoch - 1)
    life.init_again("say who one will be", life.epoch + 5)
    life.add("begin for the third time")
    life.produce("produce for the third time")
    zombie: dict[str, Any] = {"producer_id": life.producer_id, "producer_epoch": life.epoch}
    life.init("take over")
    life.look("taken over")
    life.add("add of a zombie", **zombie)
    life.end("commit of a zombie", **zombie)
    life.commit_offsets("offsets of a zombie", **zombie)
    life.mark("mark what is not open", (TOPIC, 0), epoch=life.epoch)
    life.mark("mark what is not there", (TOPIC, 7), ("unknown", 0), epoch=life.epoch)
    life.mark("mark with an old epoch", (TOPIC, 0), epoch=0)
    life.look("marked")


@pytest.mark.parametrize("version", range(6))
def test_a_life_in_every_version(version: int, theirs: tuple[str, str], ours: str) -> None:
    kafka, bootstrap = theirs
    lives = []
    for address in (bootstrap, ours):
        with closing(ConfigClient(address)) as client:
            life = TransactionLife(client, f"x-{kafka}-{version}", version, kafka)
            live(life)
            lives.append(life.told)
    their_life, our_life = lives
    differences = [(a, b) for a, b in zip(their_life, our_life, strict=True) if a != b]
    assert not differences, "\n".join(f"{a}\n{b}" for a, b in differences)
