"""Late writers, refusals, the ends of epochs and ids, and what operators see of transactions and do to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from tests.server.coordinator.transaction.producers import NONE, RawProducer, committed_values, find
from tests.server.data_plane import DataPlane, play

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
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
from barnabas.server.coordinator import creation_limiter
from barnabas.server.coordinator.coordinator_log import CoordinatorRecord, ResponseCallback
from barnabas.server.coordinator.group.group_coordinator import GroupCoordinator
from barnabas.server.coordinator.group.group_metadata_manager import GroupMetadataManager
from barnabas.server.coordinator.transaction import transaction_state_manager
from barnabas.server.coordinator.transaction.transaction_metadata import (
    LAST_EPOCH,
    TransactionMetadata,
    TransactionState,
)
from barnabas.server.coordinator.transaction.transaction_state_manager import WAIT_SECONDS
from barnabas.server.metadata.cluster_features import TRANSACTION_VERSION, ClusterFeatures, FeatureUpdate, UpgradeType
from barnabas.simulation.machines import WorkDelays

_E = ErrorCode
SYNC_SECONDS = 0.1


async def settle(plane: DataPlane, transactional_id: str = "x") -> None:
    """Nothing is on its way about the id."""
    found = plane.state.transaction_coordinator.state_manager.find_transaction(transactional_id)
    assert found is not None
    await plane.until(lambda: not found.is_busy)


@pytest.mark.parametrize(("api_version", "error"), [(9, _E.INVALID_TXN_STATE), (11, _E.TRANSACTION_ABORTABLE)])
def test_a_batch_that_is_late_cannot_begin_a_transaction(api_version: int, error: ErrorCode) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=1)
        assert await producer.append(b"unannounced", api_version=api_version) == error
        await producer.send(b"a")
        await producer.commit()
        await settle(plane)
        assert await producer.append(b"late", api_version=api_version) == error
        assert plane.partition().log.last_stable_offset == plane.partition().log.log_end_offset

    play(talk)


def test_without_verification_older_producers_begin_transactions_as_they_like() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=1)
        assert await producer.append(b"unannounced") == NONE

    play(talk, settings={"transaction.partition.verification.enable": "false"})


def test_transactions_of_one_request_do_not_wait_for_each_other() -> None:
    async def talk(plane: DataPlane) -> None:
        producers = [await RawProducer.open(plane, f"x{number}") for number in range(30)]

        async def add(some: list[RawProducer]) -> float:
            """How long it takes to add a partition to the transactions of some."""
            began = plane.loop.time()
            topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
            transactions = [
                AddPartitionsToTxnTransaction(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    producer_epoch=one.epoch,
                    topics=topics,
                )
                for one in some
            ]
            connection = some[0].connection
            answer = await connection.send(AddPartitionsToTxnRequest(transactions=transactions), 5)
            assert [one.transactional_id for one in answer.results_by_transaction] == [
                one.transactional_id for one in some
            ]
            for one in answer.results_by_transaction:
                assert one.topic_results[0].results_by_partition[0].partition_error_code == NONE
            return plane.loop.time() - began

        assert await add(producers) < 5 * SYNC_SECONDS

    play(talk, delays=WorkDelays(usual=SYNC_SECONDS))


@pytest.mark.parametrize(("sync_seconds", "expected"), [(0.02, NONE), (1.0, _E.CONCURRENT_TRANSACTIONS)])
def test_who_names_partitions_early_is_not_sent_away_if_that_is_a_matter_of_milliseconds(
    sync_seconds: float, expected: ErrorCode
) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=1)
        await producer.send(b"a")
        await producer.add_offsets("g")
        await producer.commit()
        found = plane.state.transaction_coordinator.state_manager.find_transaction("x")
        assert found is not None and found.is_busy
        began = plane.loop.time()
        assert await producer.add(0, 1) == [expected, expected]
        if expected is not NONE:
            assert plane.loop.time() - began == pytest.approx(WAIT_SECONDS, abs=0.01)
            assert await producer.add_offsets("g") == expected
            await settle(plane)
            assert await producer.add(0, 1) == [NONE, NONE]

    play(talk, delays=WorkDelays(usual=sync_seconds))


@pytest.mark.parametrize("version", [1, 2])
def test_who_begins_while_its_id_is_forgotten_is_told_that_it_is(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=version)
        await asyncio.sleep(1)
        coordinator = plane.state.transaction_coordinator.state_manager
        found = coordinator.find_transaction("x")
        await coordinator.remove_expired_transactional_ids()
        assert found is not None and found.has_pending_transition
        errors = await producer.add(0) if version == 1 else [await producer.append(b"v")]
        assert errors == [_E.INVALID_PRODUCER_ID_MAPPING]

    play(talk, settings={"transactional.id.expiration.ms": "1"}, delays=WorkDelays(usual=0.02))


def test_a_late_batch_of_the_second_protocol_has_an_old_epoch() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane)
        await producer.send(b"a")
        late = RawProducer(await plane.connect(), "x", 2)
        late.producer_id, late.epoch, late.sequences = producer.producer_id, producer.epoch, dict(producer.sequences)
        await producer.commit()
        assert await late.append(b"late") == _E.INVALID_PRODUCER_EPOCH
        assert await late.append(b"late", index=1) in (_E.INVALID_PRODUCER_EPOCH, _E.CONCURRENT_TRANSACTIONS)
        await settle(plane)
        assert await late.append(b"late", index=1) == _E.INVALID_PRODUCER_EPOCH
        assert producer.known().state is TransactionState.COMPLETE_COMMIT

    play(talk)


def test_with_an_epoch_a_transaction_a_partition_begins_at_sequence_0() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane)
        producer.sequences["t", 0] = 3
        assert await producer.append(b"v") == _E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.known().state is TransactionState.EMPTY

    play(talk)


def test_partitions_are_added_all_or_none() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=1)
        assert await producer.add(0, 7) == [_E.OPERATION_NOT_ATTEMPTED, _E.UNKNOWN_TOPIC_OR_PARTITION]
        assert await producer.add(0, topic="__transaction_state") == [_E.TOPIC_AUTHORIZATION_FAILED]
        assert producer.known().state is TransactionState.EMPTY
        assert await producer.add(0) == await producer.add(0) == [NONE]
        topics = [AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
        fields: dict[str, Any] = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "topics": topics,
        }
        wanted = [
            AddPartitionsToTxnTransaction(transactional_id="x", verify_only=True, **fields),
            AddPartitionsToTxnTransaction(transactional_id="unknown", verify_only=True, **fields),
        ]
        answer = await producer.connection.send(AddPartitionsToTxnRequest(transactions=wanted), 5)
        found = {
            (one.transactional_id, part.partition_index): part.partition_error_code
            for one in answer.results_by_transaction
            for topic in one.topic_results
            for part in topic.results_by_partition
        }
        assert found == {
            ("x", 0): NONE,
            ("x", 1): _E.TRANSACTION_ABORTABLE,
            ("unknown", 0): _E.INVALID_PRODUCER_ID_MAPPING,
            ("unknown", 1): _E.INVALID_PRODUCER_ID_MAPPING,
        }

    play(talk)


def test_what_init_producer_id_refuses() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane)
        for timeout_ms in (0, -1, 900_001):
            assert await producer.init(timeout_ms=timeout_ms) == _E.INVALID_TRANSACTION_TIMEOUT
        await RawProducer.open(plane)
        assert await producer.init(keep=True) == _E.PRODUCER_FENCED
        assert await producer.init(keep=True, version=3) == _E.INVALID_PRODUCER_EPOCH
        answer = await producer.connection.send(
            InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 4
        )
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (_E.INVALID_REQUEST, -1, -1)

    play(talk)


@pytest.mark.parametrize("version", [1, 2])
def test_epochs_that_are_used_up_lead_to_another_producer_id(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=version)
        found = plane.state.transaction_coordinator.state_manager.find_transaction("x")
        assert found is not None
        first = producer.producer_id
        producer.epoch = LAST_EPOCH - 1
        found.metadata = found.metadata._replace(producer_epoch=LAST_EPOCH - 1)
        await producer.send(b"last")
        await producer.commit()
        await settle(plane)
        if version == 1:
            assert await producer.init(keep=True) == NONE
        assert (producer.producer_id, producer.epoch) != (first, LAST_EPOCH)
        assert producer.producer_id > first and producer.epoch == 0
        await producer.send(b"first")
        await producer.commit()
        await settle(plane)
        assert await committed_values(plane) == [b"last", b"first"]

    play(talk)


LOOK_OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


async def open_at_the_last_epoch(plane: DataPlane, transactional_id: str = "x", *, version: int = 2) -> RawProducer:
    """A producer with an open transaction of 1000 ms and the last epoch that it may have."""
    producer = await RawProducer.open(plane, transactional_id, version=version, timeout_ms=1000)
    found = plane.state.transaction_coordinator.state_manager.find_transaction(transactional_id)
    assert found is not None
    producer.epoch = LAST_EPOCH - 1
    found.metadata = found.metadata._replace(producer_epoch=LAST_EPOCH - 1)
    await producer.send(b"open")
    return producer


async def timed_out(plane: DataPlane, producer: RawProducer) -> None:
    await plane.until(lambda: producer.known().state is TransactionState.COMPLETE_ABORT, 30)


def test_a_timeout_at_the_last_epoch_leads_to_another_producer_id() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await open_at_the_last_epoch(plane)
        first = producer.producer_id
        await timed_out(plane, producer)
        assert producer.known().producer_id > first
        assert producer.known().producer_epoch == 0
        await producer.abort()  # late, and answered with the identity to go on with
        assert (producer.producer_id, producer.epoch) == (producer.known().producer_id, 0)
        await producer.send(b"next")
        await producer.commit()
        await settle(plane)
        assert await committed_values(plane) == [b"next"]
        assert plane.partition().log.last_stable_offset == plane.partition().log.log_end_offset

    play(talk, settings=LOOK_OFTEN)


def test_a_timeout_at_the_last_epoch_without_epochs_of_transactions() -> None:
    """By `transaction.version` 1 the producer is fenced, and whoever begins anew has another producer id."""

    async def talk(plane: DataPlane) -> None:
        features = plane.state.features
        assert isinstance(features, ClusterFeatures)
        await features.update({TRANSACTION_VERSION: FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)}, validate_only=False)
        producer = await open_at_the_last_epoch(plane, version=1)
        first = producer.producer_id
        await timed_out(plane, producer)
        assert (producer.known().producer_id, producer.known().producer_epoch) == (first, LAST_EPOCH)
        assert await producer.end(is_commit=True) == _E.PRODUCER_FENCED
        assert await producer.end(is_commit=False, api_version=5) == _E.PRODUCER_FENCED
        producer.epoch = LAST_EPOCH
        assert await producer.add(0) == [_E.PRODUCER_FENCED], "that epoch is nobody's"
        assert await producer.init() == NONE
        assert producer.producer_id > first and producer.epoch == 0

    play(talk, settings=LOOK_OFTEN)


@pytest.mark.parametrize("version", [1, 2])
def test_who_takes_over_at_the_last_epoch_gets_another_producer_id(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await open_at_the_last_epoch(plane, version=version)
        heir = await RawProducer.open(plane, version=version)
        assert heir.producer_id > producer.producer_id and heir.epoch in (0, 1)
        await heir.send(b"next")
        await heir.commit()
        await settle(plane)
        assert await committed_values(plane) == [b"next"]

    play(talk)


def test_a_transaction_that_an_older_version_left_at_the_fencing_epoch_is_aborted() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await open_at_the_last_epoch(plane)
        found = plane.state.transaction_coordinator.state_manager.find_transaction("x")
        assert found is not None
        found.metadata = found.metadata._replace(producer_epoch=LAST_EPOCH)
        await timed_out(plane, producer)
        assert producer.known().producer_epoch == 0
        assert plane.partition().log.last_stable_offset == plane.partition().log.log_end_offset

    play(talk, settings=LOOK_OFTEN)


def test_one_transaction_that_cannot_be_aborted_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    really = transaction_state_manager.transaction_record

    def entry(transactional_id: str, metadata: TransactionMetadata, level: int) -> CoordinatorRecord:
        if transactional_id == "a" and metadata.state is TransactionState.PREPARE_ABORT:
            raise ValueError("on purpose")
        return really(transactional_id, metadata, level)

    monkeypatch.setattr(transaction_state_manager, "transaction_record", entry)

    async def talk(plane: DataPlane) -> None:
        producers = [await RawProducer.open(plane, name, timeout_ms=1000) for name in ("a", "b")]
        for one in producers:
            await one.send(b"open")
        await timed_out(plane, producers[1])
        bad = plane.state.transaction_coordinator.state_manager.find_transaction("a")
        assert bad is not None
        assert not bad.is_busy, "what cannot be encoded does not keep its id busy"
        monkeypatch.undo()
        await timed_out(plane, producers[0])

    play(talk, settings=LOOK_OFTEN)


def test_a_commit_after_the_coordinators_abort_is_fenced() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, timeout_ms=1000)
        await producer.send(b"open")
        await timed_out(plane, producer)
        assert await producer.end(is_commit=True) == _E.PRODUCER_FENCED
        assert await producer.end(is_commit=False) == NONE
        await producer.send(b"next")
        await producer.commit()

    play(talk, settings=LOOK_OFTEN)


def test_ids_that_are_not_used_are_forgotten() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane)
        other = await RawProducer.open(plane, "open", timeout_ms=900_000)
        await other.send(b"v")
        coordinator = plane.state.transaction_coordinator.state_manager
        await plane.until(lambda: coordinator.find_transaction("x") is None, 30)
        assert coordinator.find_transaction("open") is not None
        assert await producer.end(is_commit=False) == _E.INVALID_PRODUCER_ID_MAPPING

    settings = {
        "transactional.id.expiration.ms": "5000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    }
    play(talk, settings=settings)


def test_what_was_given_up_is_not_forgotten_where_it_is_known_again() -> None:
    """Ids are looked at in turns, and leadership may go and come back in between."""

    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane)
        coordinator = plane.state.transaction_coordinator.state_manager
        before = coordinator.find_transaction("x")
        assert before is not None

        async def load() -> None:
            coordinator._runtime.reload()
            await plane.until(lambda: not coordinator.is_loading)

        await load()
        await producer.send(b"v")
        coordinator._delete_unused([before])
        await plane.until(lambda: not before.has_pending_transition)
        await load()
        found = coordinator.find_transaction("x")
        assert found is not None and found.metadata.state is TransactionState.ONGOING

    play(talk)


def test_a_client_that_makes_more_and_more_ids_loses_the_idle_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation_limiter, "NAMES_PER_CLIENT", 5)

    async def talk(plane: DataPlane) -> None:
        for number in range(20):
            (await RawProducer.open(plane, f"id{number}")).connection.close()
        coordinator = plane.state.transaction_coordinator.state_manager
        assert len(list(coordinator.transactions)) <= 5
        for transaction in list(coordinator.transactions):
            await (await RawProducer.open(plane, transaction.transactional_id)).send(b"v")
        busy = RawProducer(await plane.connect(), "one more", 2)
        for _ in range(5 - len(list(coordinator.transactions))):
            await (await RawProducer.open(plane, f"more{_}")).send(b"v")
        assert await busy.init() == _E.POLICY_VIOLATION

    play(talk)


def test_transactions_are_listed_and_described() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane)
        await producer.send(b"v")
        (await RawProducer.open(plane, "idle")).connection.close()

        async def listed(version: int = 2, **filters: Any) -> list[str]:
            answer = await producer.connection.send(ListTransactionsRequest(**filters), version)
            assert answer.error_code == NONE
            return sorted(one.transactional_id for one in answer.transaction_states)

        assert await listed() == ["idle", "x"]
        assert await listed(state_filters=["Ongoing"]) == ["x"]
        assert await listed(state_filters=["Sleeping"]) == []
        assert await listed(producer_id_filters=[producer.producer_id]) == ["x"]
        assert await listed(transactional_id_pattern="i.*") == ["idle"]
        assert await listed(transactional_id_pattern=r"\w|[[:punct:] ]+") == ["x"]
        await asyncio.sleep(2)
        assert "x" in await listed(duration_filter=1000)
        assert "x" not in await listed(duration_filter=60_000)
        request = DescribeTransactionsRequest(transactional_ids=["x", "", "unknown"])
        answer = await producer.connection.send(request, 0)
        known, empty, unknown = answer.transaction_states
        assert (known.transaction_state, known.producer_id, known.producer_epoch) == (
            "Ongoing",
            producer.producer_id,
            producer.epoch,
        )
        assert [(one.topic, one.partitions) for one in known.topics] == [("t", [0])]
        assert (empty.error_code, unknown.error_code) == (_E.INVALID_REQUEST, _E.TRANSACTIONAL_ID_NOT_FOUND)

    play(talk)


def test_an_operator_ends_a_transaction_by_its_marker() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane)
        await producer.send(b"hangs")
        described = await producer.connection.send(
            DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])]), 0
        )
        (state,) = described.topics[0].partitions[0].active_producers
        assert state.current_txn_start_offset == 0
        marker = WritableTxnMarker(
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            transaction_result=False,
            coordinator_epoch=state.coordinator_epoch,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9])],
        )
        answer = await producer.connection.send(WriteTxnMarkersRequest(markers=[marker]), 1)
        ((topic,),) = (one.topics for one in answer.markers)
        found = {part.partition_index: part.error_code for part in topic.partitions}
        assert found == {0: NONE, 9: _E.UNKNOWN_TOPIC_OR_PARTITION}
        assert plane.partition().log.last_stable_offset == 2
        assert await committed_values(plane) == []
        await producer.send(b"again")
        await producer.commit()
        await settle(plane)
        assert await committed_values(plane) == [b"again"]

    play(talk)


def test_a_delayed_marker_of_the_transaction_before_does_not_end_the_present_one() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=2)
        await producer.send(b"a")
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            transaction_version=2,
        )

        async def send(version: int) -> int:
            answer = await producer.connection.send(WriteTxnMarkersRequest(markers=[marker]), version)
            return int(answer.markers[0].topics[0].partitions[0].error_code)

        # In transaction version 2 the marker has the next epoch: this one can only belong to the transaction before.
        assert await send(2) == _E.INVALID_PRODUCER_EPOCH
        assert await committed_values(plane) == []
        await producer.commit()
        await settle(plane)
        assert await committed_values(plane) == [b"a"]
        # Its repetition, after the response was lost, is accepted.
        marker.producer_epoch = producer.epoch
        assert await send(2) == NONE
        await producer.send(b"b")
        # Version 1 has no transaction version, and any epoch that is not older ends the transaction.
        marker.producer_epoch = producer.epoch
        assert await send(1) == NONE
        assert await committed_values(plane) == [b"a", b"b"]

    play(talk)


def test_transactional_offsets_by_topic_id_have_the_errors_of_members() -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=2)
        await find(producer.connection, "g")

        async def commit(topic_id: UUID, version: int = 6, **member: Any) -> int:
            part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
            topic = TxnOffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[part])
            request = TxnOffsetCommitRequest(
                transactional_id="x",
                group_id="g",
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=[topic],
                **member,
            )
            (answer,) = (await producer.connection.send(request, version)).topics
            assert (answer.name, answer.topic_id) == (("", topic_id) if version >= 6 else ("t", UUID(int=0)))
            return int(answer.partitions[0].error_code)

        known, unknown = plane.topic_id(), UUID(int=77)
        member: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": 3}
        assert await commit(known, **member) == _E.GROUP_ID_NOT_FOUND
        assert await commit(known, 5, **member) == _E.ILLEGAL_GENERATION
        assert await commit(unknown) == _E.UNKNOWN_TOPIC_ID
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        joined = await producer.connection.send(beat, 1)
        assert joined.error_code == NONE
        member["generation_id_or_member_epoch"] = joined.member_epoch + 1
        assert await commit(known, **member) == _E.STALE_MEMBER_EPOCH
        assert await commit(known, 5, **member) == _E.ILLEGAL_GENERATION
        member["generation_id_or_member_epoch"] = joined.member_epoch
        assert await commit(known, **member) == NONE
        await producer.commit()
        await settle(plane)
        assert plane.state.group_coordinator.group_manager.find_group("g").offsets.get("t", 0).offset == 3

    play(talk)


def test_a_transaction_ends_although_a_topic_of_it_is_deleted() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("gone")
        producer = await RawProducer.open(plane)
        await producer.send(b"v")
        await producer.send(b"v", topic="gone")
        await plane.delete_topic("gone")
        await producer.commit()
        await settle(plane)
        assert await committed_values(plane) == [b"v"]

    play(talk)


async def with_open_offset(plane: DataPlane) -> RawProducer:
    """A producer whose open transaction has an offset of the group `g`."""
    producer = await RawProducer.open(plane, version=2)
    await find(producer.connection, "g")
    assert await producer.commit_offset("g", 3) == NONE
    return producer


async def commit_offset_of(producer: RawProducer) -> None:
    """Commit the open transaction, and check that the group has its offset."""
    await producer.commit()
    await settle(producer.plane)
    assert producer.plane.state.group_coordinator.group_manager.find_group("g").offsets.get("t", 0).offset == 3


def test_a_marker_is_repeated_if_the_groups_of_its_partition_are_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await with_open_offset(plane)
        calls, check = 0, GroupMetadataManager.check_partition_loaded

        def fail_after_append(manager: GroupMetadataManager, index: int) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:  # the first call is before the marker is appended
                raise KafkaError(_E.COORDINATOR_LOAD_IN_PROGRESS, "loading")
            check(manager, index)

        monkeypatch.setattr(GroupMetadataManager, "check_partition_loaded", fail_after_append)
        await commit_offset_of(producer)
        assert calls == 4

    play(talk)


def test_a_marker_is_repeated_if_the_offsets_cannot_be_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(plane: DataPlane) -> None:
        producer = await with_open_offset(plane)
        calls, complete = 0, GroupCoordinator.complete_transaction

        def fail_first(coordinator: GroupCoordinator, index: int, producer_id: int, *, is_commit: bool) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise RuntimeError("a fault")
            complete(coordinator, index, producer_id, is_commit=is_commit)

        monkeypatch.setattr(GroupCoordinator, "complete_transaction", fail_first)
        await commit_offset_of(producer)
        assert calls == 2

    play(talk)


@pytest.mark.parametrize("error", [NONE, _E.NOT_COORDINATOR])
def test_only_the_present_coordinator_refuses_to_end_an_unknown_transaction(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode
) -> None:
    """A former coordinator does not have the transaction, and a fatal error would stop the producer."""

    async def talk(plane: DataPlane) -> None:
        producer = await RawProducer.open(plane, version=2)
        log = plane.state.transaction_coordinator.state_manager._log
        appended: list[int] = []

        def append(index: int, records: Iterable[CoordinatorRecord], done: ResponseCallback, **_: Any) -> bool:
            appended.append(len(list(records)))
            done(error)
            return not error

        monkeypatch.setattr(log, "append", append)
        assert await producer.end(is_commit=True) == (error or _E.INVALID_TXN_STATE)
        assert appended == [1]
        producer.epoch += 1
        assert await producer.end(is_commit=True) == (error or _E.PRODUCER_FENCED)
        assert await producer.add(0) == [error or _E.PRODUCER_FENCED]
        assert appended == [1] * 3
        producer.epoch -= 2
        assert await producer.end(is_commit=True) == _E.PRODUCER_FENCED
        assert appended == [1] * 3

    play(talk)


@pytest.mark.parametrize("error", [NONE, _E.NOT_COORDINATOR])
def test_only_the_present_coordinator_repeats_its_success_to_older_producers(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode
) -> None:
    """Their epoch is the same in the next transaction, of which a former coordinator has no record."""

    async def talk(plane: DataPlane) -> None:
        log = plane.state.transaction_coordinator.state_manager._log
        appended: list[int] = []

        def append(index: int, records: Iterable[CoordinatorRecord], done: ResponseCallback, **_: Any) -> bool:
            appended.append(len(list(records)))
            done(error)
            return not error

        producer = await RawProducer.open(plane, version=1)
        await producer.send(b"v")
        with monkeypatch.context() as patch:
            patch.setattr(log, "append", append)
            assert await producer.add(0) == [error]
        await producer.commit()
        await settle(plane)
        monkeypatch.setattr(log, "append", append)
        assert await producer.end(is_commit=True) == error
        assert appended == [1, 1]

    play(talk)
