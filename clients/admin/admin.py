"""The admin client: topics, partitions, configurations, offsets, groups, log directories."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import TracebackType
from typing import Self

from ..client import Client
from ..connection import ConnectionOptions
from ..host import new_random
from ..security import PLAINTEXT, Security
from .acls import AclAdmin
from .brokers import BrokerAdmin
from .configs import ConfigAdmin
from .controller_link import ControllerLink
from .groups import GroupAdmin
from .quotas import QuotaAdmin
from .records import RecordAdmin
from .topics import TopicAdmin
from .transactions import TransactionAdmin


class Admin:
    """One cluster's administration. Methods that act on several things return an outcome for each.

    async with Admin("localhost:9092") as admin:
        await admin.create_topics([NewTopic("flights", num_partitions=4)])

    Each method is one of an owner's, `TopicAdmin` to `GroupAdmin`, which say what it does.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = "barnabas-admin",
        request_timeout_ms: int = 30_000,
        socket_connection_setup_timeout_ms: int | None = None,
        default_api_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        security: Security = PLAINTEXT,
        rng: Random | None = None,
    ) -> None:
        self._client = Client(
            bootstrap_servers,
            rng=rng or new_random(),
            options=ConnectionOptions(
                client_id, request_timeout_ms, socket_connection_setup_timeout_ms, security=security
            ),
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            allow_auto_topic_creation=False,
        )
        self._appoint(request_timeout_ms, default_api_timeout_ms)

    def _appoint(self, request_timeout_ms: int, timeout_ms: int) -> None:
        """Whose methods these are."""
        controller = ControllerLink(self._client, request_timeout_ms=request_timeout_ms, timeout_ms=timeout_ms)

        topics = TopicAdmin(self._client, controller)
        self.create_topics = topics.create_topics
        self.delete_topics = topics.delete_topics
        self.create_partitions = topics.create_partitions
        self.describe_topics = topics.describe_topics
        self.partitions_of = topics.partitions_of

        configs = ConfigAdmin(self._client, controller)
        self.describe_configs = configs.describe_configs
        self.alter_configs = configs.alter_configs

        records = RecordAdmin(self._client, request_timeout_ms=request_timeout_ms, timeout_ms=timeout_ms)
        self.list_offsets = records.list_offsets
        self.delete_records = records.delete_records

        brokers = BrokerAdmin(self._client)
        self.describe_cluster = brokers.describe_cluster
        self.describe_log_dirs = brokers.describe_log_dirs

        groups = GroupAdmin(self._client, timeout_ms=timeout_ms)
        self.list_groups = groups.list_groups
        self.describe_groups = groups.describe_groups
        self.delete_groups = groups.delete_groups
        self.list_group_offsets = groups.list_group_offsets
        self.alter_group_offsets = groups.alter_group_offsets
        self.delete_group_offsets = groups.delete_group_offsets
        self.remove_members = groups.remove_members
        self.group_lag = groups.group_lag

        quotas = QuotaAdmin(self._client, controller)
        self.describe_quotas = quotas.describe_quotas
        self.alter_quotas = quotas.alter_quotas

        acls = AclAdmin(self._client, controller)
        self.describe_acls = acls.describe_acls
        self.create_acls = acls.create_acls
        self.delete_acls = acls.delete_acls

        transactions = TransactionAdmin(self._client, timeout_ms=timeout_ms)
        self.list_transactions = transactions.list_transactions
        self.describe_transactions = transactions.describe_transactions
        self.open_transactions = transactions.open_transactions
        self.abort_transaction = transactions.abort_transaction
        self.find_hanging = transactions.find_hanging

    async def start(self) -> Self:
        """Reach the cluster. Raises BrokerUnreachableError."""
        await self._client.start()
        return self

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
