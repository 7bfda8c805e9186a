"""An append of the batches of several produce requests with one write."""

from __future__ import annotations

from ..protocol.joint_produce import JoinedProduces, join_produces
from .log_config import LogConfig
from .log_validator import AppendContext, AppendRules, ValidationResult, nothing_appended
from .producer_state import ProducerStateManager

JOINT_RULES = AppendRules(requires_single_v2_batch=True, allows_zstd=False, has_joined_batches=True)


class JointAppend:
    """The `validate` function of one append to a log, which reads the batches from produce requests of one group.

    A request whose batch is not valid, would have to be changed, or is not the next one of its idempotent producer, is
    omitted together with all later requests of its connection: they take the general path after this append, which
    finds the error or the earlier append of a repeated batch. The receive buffer is not changed.
    """

    __slots__ = ("_buffer", "_key", "_log_start_offset", "_most", "_parts", "_producer_state", "joined")

    def __init__(
        self,
        buffer: memoryview,
        parts: list[tuple[int, int]],
        key: bytes,
        log_start_offset: int,
        producer_state: ProducerStateManager,
        most: int,
    ) -> None:
        """`parts` of `buffer` begin with requests whose key is `key` (`group_produces`), one part per connection.

        At most `most` requests of each part are joined. `log_start_offset` and `producer_state` belong to the log.
        """
        self._buffer = buffer
        self._parts = parts
        self._key = key
        self._log_start_offset = log_start_offset
        self._producer_state = producer_state
        self._most = most
        self.joined: JoinedProduces | None = None
        """The batches and the responses; None before the log calls this function, and if no batch is appended."""

    def __call__(
        self,
        records: memoryview,
        rules: AppendRules,
        base_offset: int,
        now_ms: int,
        config: LogConfig,
        leader_epoch: int,
        target_magic: int = 2,
    ) -> ValidationResult:
        """Check the batches and give them offsets from `base_offset` on; `records` are not used."""
        if not config.stores_as_sent or target_magic != 2:
            return nothing_appended()
        record_rules = AppendContext(rules, base_offset, now_ms, config, leader_epoch, target_magic).record_rules
        limits = config.max_message_bytes, self._log_start_offset, self._most
        place = base_offset, leader_epoch
        appends = self._producer_state.begin_appends()
        joined = JoinedProduces(
            *join_produces(self._buffer, self._parts, self._key, place, limits, record_rules, appends.add)
        )
        if not joined.record_count:
            return nothing_appended()
        self.joined = joined
        last_offset = base_offset + joined.record_count - 1
        count, max_timestamp = joined.record_count, joined.max_timestamp
        return ValidationResult(
            joined.data, base_offset, last_offset, count, max_timestamp, producer_appends=appends or None
        )
