"""WriteTxnMarkers (key 27): the transaction coordinator has markers written.

Versions 0-2, flexible from 1.
   2  per-marker transaction version so partition leaders can demand a strictly larger epoch (KIP-1228)
"""

from __future__ import annotations

from ..schema import boolean, int8, int16, int32, int64, message, string, wire


@message
class WritableTxnMarkerTopic:
    name: str = wire(string, "0+")
    partition_indexes: list[int] = wire([int32], "0+")


@message
class WritableTxnMarker:
    producer_id: int = wire(int64, "0+")
    producer_epoch: int = wire(int16, "0+")
    transaction_result: bool = wire(boolean, "0+")
    topics: list[WritableTxnMarkerTopic] = wire([WritableTxnMarkerTopic], "0+")
    coordinator_epoch: int = wire(int32, "0+")
    transaction_version: int = wire(int8, "2+", ignorable=True)


@message(versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = wire([WritableTxnMarker], "0+")


@message
class WritableTxnMarkerPartitionResult:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")


@message
class WritableTxnMarkerTopicResult:
    name: str = wire(string, "0+")
    partitions: list[WritableTxnMarkerPartitionResult] = wire([WritableTxnMarkerPartitionResult], "0+")


@message
class WritableTxnMarkerResult:
    producer_id: int = wire(int64, "0+")
    topics: list[WritableTxnMarkerTopicResult] = wire([WritableTxnMarkerTopicResult], "0+")


@message(versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = wire([WritableTxnMarkerResult], "0+")
