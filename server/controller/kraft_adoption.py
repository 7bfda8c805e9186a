"""Adoption of the metadata of a KRaft quorum by a single broker: `__cluster_metadata-0` becomes nodes of its store.

The store must be new. The node `KRAFT_ADOPTION` exists until the logs are adopted, too: a broker that crashes before
that writes everything again at its next start, before it serves clients. Topics are created when their logs are adopted
(`adoption.py`); only their settings and numbers of partitions are from the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ...common.error_description import describe_error
from ...common.printable_text import printable
from ...common.room_logger import room_logger
from ...protocol.acl_bindings import AccessControlEntry, ResourcePattern
from ...protocol.config_resources import ConfigResource, ConfigResourceType
from ...protocol.errors import KafkaError
from ...protocol.sasl_server import ScramCredential
from ..config.dynamic_config import broker_key
from ..config.named_configs import NAMED_KINDS
from ..metadata import acl_store, token_store, znodes
from ..metadata.cluster_features import FEATURES
from ..metadata.config_store import node_name
from ..metadata.metadata_store import Create, Delete, MetadataStore, NoNodeError, Operation, SetData
from ..metadata.token_store import DelegationToken
from ..quotas.entities import check_quota, entity_of, quota_text
from ..quotas.stored_quotas import quota_node
from ..runtime.loop_sharing import CountBudget

if TYPE_CHECKING:
    from ...storage.filesystem import FileSystem
    from ..config.dynamic_config import DynamicConfig
    from ..image.metadata_image import MetadataImage
    from ..runtime.ports import Work

logger = room_logger("controller")

METADATA_FOLDER = "__cluster_metadata-0"
SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NODES_PER_WRITE = 100
"""Nodes in one transaction of the store, which is one sync of its file."""
MAX_LOGGED = 100
"""Log messages about settings that are not adopted."""


class KraftTopic(NamedTuple):
    """The settings of a topic in the metadata of the quorum, and its number of partitions.

    The number is 0 if this broker has no replica of some of them.
    """

    name: str
    config: Mapping[str, str]
    num_partitions: int


class AdoptedMetadata:
    """The nodes of a metadata store with the content of an image, and the descriptions of the rest."""

    def __init__(self, broker_id: int, dynamic_config: DynamicConfig) -> None:
        self.nodes: dict[str, bytes] = {}
        """Data by path."""
        self.skipped: list[str] = []
        """The settings that a broker of this version cannot have, each with the reason."""
        self.counts: dict[str, int] = {}
        """The number of adopted things of each kind."""
        self._broker_id = broker_id
        self._dynamic_config = dynamic_config
        self._configs: dict[str, dict[str, str]] = {}
        """Settings by path. A user's node has both quotas and credentials."""

    async def add(self, image: MetadataImage) -> None:
        """Add everything except topics. The loop runs other tasks in between."""
        budget = CountBudget()
        await self._add_configs(image, budget)
        await self._add_client_quotas(image, budget)
        await self._add_scram_credentials(image, budget)
        for path, config in self._configs.items():
            self.nodes[path] = znodes.encode_config(config)
            await budget.step()
        await self._add_acls(image, budget)
        await self._add_delegation_tokens(image, budget)
        self._add_producer_ids(image)
        self._add_features(image)

    async def _add_configs(self, image: MetadataImage, budget: CountBudget) -> None:
        for resource, config in image.configs.configs.items():
            if resource.type is ConfigResourceType.BROKER:
                self._add_broker_config(resource, config)
            elif resource.type in NAMED_KINDS and resource.name:
                kind = NAMED_KINDS[resource.type]
                check = partial(kind.check, self._dynamic_config.config)
                what = f"settings of {resource.name} in {kind.entity_type}"
                if legal := self._legal(what, config, check):
                    self._configs[znodes.config_path(kind.entity_type, node_name(resource.name))] = legal
                    self._count(kind.entity_type)
            elif resource.type is not ConfigResourceType.TOPIC:
                self.skipped.append(f"settings of '{resource.name}': unknown type of resource, or no name")
            await budget.step(1 + len(config))

    def _add_broker_config(self, resource: ConfigResource, config: Mapping[str, str]) -> None:
        what = f"settings of broker {resource.name}" if resource.name else "settings of all brokers"
        if resource.name not in ("", str(self._broker_id)):
            self.skipped.append(f"{what}: {', '.join(sorted(config))}")
            return
        known = {name: value for name, value in config.items() if broker_key(name) is not None}
        if known != config:
            self.skipped.append(f"{what}: unknown: {', '.join(sorted(config.keys() - known.keys()))}")
        check = partial(self._dynamic_config.check_broker_config, per_broker=bool(resource.name))
        if legal := self._legal(what, known, check):
            self._configs[znodes.config_path("brokers", resource.name or znodes.DEFAULT_ENTITY)] = legal
            self._count("brokers with settings")

    def _legal(
        self, what: str, config: Mapping[str, str], check: Callable[[Mapping[str, str]], None]
    ) -> dict[str, str]:
        """Return the settings that a check accepts, each alone and all together."""
        legal, reasons = legal_settings(config, check)
        self.skipped += [f"{what}: {reason}" for reason in reasons]
        return legal

    async def _add_client_quotas(self, image: MetadataImage, budget: CountBudget) -> None:
        for parts, quotas in image.client_quotas.entities.items():
            try:
                entity = entity_of(parts)
                for key, value in quotas.items():
                    check_quota(entity, key, value)
                    path = znodes.config_path(*quota_node(entity))
                    self._configs.setdefault(path, {})[key] = quota_text(entity, key, value)
                    self._count("client quotas")
            except KafkaError as error:
                name = ",".join(f"{kind}={name or '<default>'}" for kind, name in parts)
                self.skipped.append(f"quotas of {name}: {describe_error(error)}")
            await budget.step(len(quotas))

    async def _add_scram_credentials(self, image: MetadataImage, budget: CountBudget) -> None:
        for key, data in image.scram.credentials.items():
            mechanism = SCRAM_MECHANISMS.get(key.mechanism)
            if mechanism is None or not key.user:
                self.skipped.append(f"credential of user '{key.user}': unknown mechanism {key.mechanism}, or no name")
                continue
            path = znodes.config_path("users", znodes.user_node(key.user))
            self._configs.setdefault(path, {})[mechanism] = ScramCredential(*data).text()
            self._count("SCRAM credentials")
            await budget.step()

    async def _add_acls(self, image: MetadataImage, budget: CountBudget) -> None:
        entries: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for acl_id, (pattern, entry) in image.acls.acls.items():
            if acl_store.is_storable(pattern, entry) and pattern.name:
                entries.setdefault(pattern, set()).add(entry)
            else:
                self.skipped.append(f"ACL {acl_id}: its resource, operation or permission is valid in filters only")
            await budget.step()
        for pattern, rules in entries.items():
            data = acl_store.encode_acls(pattern, rules)
            if len(data) > acl_store.MAX_BYTES:
                self.skipped.append(
                    f"{len(rules)} ACLs of {pattern.resource_type.name} {pattern.name}: "
                    f"more than {acl_store.MAX_BYTES} bytes"
                )
                continue
            self.nodes[acl_store.acl_path(pattern)] = data
            self._count("ACLs", len(rules))
            await budget.step(len(rules))

    async def _add_delegation_tokens(self, image: MetadataImage, budget: CountBudget) -> None:
        for token_id, token in image.delegation_tokens.tokens.items():
            if not token_id or "/" in token_id or "\0" in token_id or token_id in (".", ".."):
                self.skipped.append(f"delegation token {token_id}: the id is not valid")
                continue
            stored = DelegationToken(token_id, *token)
            self.nodes[f"{token_store.ROOT}/{token_id}"] = token_store.encode_token(stored)
            self._count("delegation tokens")
            await budget.step()

    def _add_producer_ids(self, image: MetadataImage) -> None:
        # The logs contain producer ids of the quorum. A new producer with one of them would continue its sequence.
        next_id = image.producer_ids.next_producer_id
        if next_id > 0:
            block = znodes.encode_producer_id_block(self._broker_id, 0, next_id - 1)
            self.nodes[znodes.PRODUCER_ID_BLOCK] = block

    def _add_features(self, image: MetadataImage) -> None:
        levels = image.features.finalized_versions
        chosen = {}
        for name, feature in FEATURES.items():
            level = levels.get(name, 0)
            if feature.level is None or level == feature.level:
                continue
            if feature.is_choosable and (not level or feature.lowest <= level <= feature.highest):
                chosen[name] = level
            elif level > feature.level:
                self.skipped.append(f"feature {name} {level}: the level of this broker is {feature.level}")
            else:
                logger.info("feature %s has level %d instead of %d", name, feature.level, level)
        if chosen:
            self.nodes[znodes.FEATURE] = znodes.encode_features(chosen)
            self._count("features", len(chosen))

    def _count(self, kind: str, number: int = 1) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + number


def legal_settings(
    config: Mapping[str, str], check: Callable[[Mapping[str, str]], None]
) -> tuple[dict[str, str], list[str]]:
    """Return the settings that a check accepts, each alone and all together, and the reasons for the others.

    `check` raises KafkaError or ValueError.
    """
    legal, reasons = {}, []
    for name, value in config.items():
        try:
            check({name: value})
            legal[name] = value
        except (KafkaError, ValueError) as error:
            reasons.append(f"{name}: {describe_error(error)}")
    try:
        check(legal)
    except (KafkaError, ValueError) as error:
        reasons.append(f"{', '.join(sorted(legal))}: {describe_error(error)}")
        legal = {}
    return legal, reasons


class KraftAdoption:
    """Takes the metadata of a KRaft quorum into the store of a single broker that starts for the first time.

    The broker owns it until it serves clients. Nothing here fails a start, except errors of the store: a log that
    cannot be read is named in a warning.
    """

    def __init__(
        self, store: MetadataStore, dynamic_config: DynamicConfig, fs: FileSystem, work: Work, log_dirs: Iterable[str]
    ) -> None:
        """`log_dirs` are the log directories that are online."""
        self._store = store
        self._dynamic_config = dynamic_config
        self._fs = fs
        self._work = work
        self._log_dirs = list(log_dirs)
        self._image: MetadataImage | None = None
        self._is_unreadable = False
        self._is_first_start = False
        self._broker_id = -1

    async def begin(self) -> None:
        """Mark a new store whose broker finds a metadata log. Call it before the store gets a cluster id."""
        if await self._store.exists(znodes.KRAFT_ADOPTION) is not None:
            self._is_first_start = True
        elif await self._store.exists(znodes.CLUSTER_ID) is None and self._folder() is not None:
            await self._store.create(znodes.KRAFT_ADOPTION)
            self._is_first_start = True

    async def adopt(self, broker_id: int) -> None:
        """Write everything except topics to a marked store. Raises StoreError."""
        self._broker_id = broker_id
        if not self._is_first_start:
            return
        folder, image = self._folder(), await self._read_image()
        if image is not None:
            adopted = AdoptedMetadata(broker_id, self._dynamic_config)
            await adopted.add(image)
            await _write_nodes(self._store, adopted.nodes)
            counts = ", ".join(f"{kind}: {number}" for kind, number in adopted.counts.items())
            offset = image.provenance.last_contained_offset
            logger.info("adopted the metadata in %s up to offset %d: %s", folder, offset, counts or "no settings")
            for text in adopted.skipped[:MAX_LOGGED]:
                logger.warning("not adopted from %s: %s", folder, printable(text))
            if len(adopted.skipped) > MAX_LOGGED:
                logger.warning("not adopted from %s: %d others", folder, len(adopted.skipped) - MAX_LOGGED)

    async def topics(self, ids: Collection[UUID]) -> dict[UUID, KraftTopic]:
        """Return the topics with these ids that the quorum has. Call it if logs are adopted: it may read the log."""
        image = await self._read_image()
        found: dict[UUID, KraftTopic] = {}
        if image is None:
            return found
        budget = CountBudget()
        for topic_id in ids:
            topic = image.topics.by_id.get(topic_id)
            if topic is None:
                continue
            config = image.configs.config(ConfigResourceType.TOPIC, topic.name)
            legal, reasons = legal_settings(config, self._dynamic_config.check_topic_config)
            for reason in reasons:
                text = f"settings of topic {topic.name}: {reason}"
                logger.warning("not adopted from %s: %s", self._folder(), printable(text))
            # Partitions of a cluster of several brokers may be on other brokers alone.
            is_whole = all(self._broker_id in partition.replicas for partition in topic.partitions.values())
            found[topic.id] = KraftTopic(topic.name, legal, len(topic.partitions) if is_whole else 0)
            await budget.step(1 + len(config))
        if found and not self._is_first_start:
            logger.warning(
                "only settings of topics are adopted from %s: the metadata store of this broker is not new",
                self._folder(),
            )
        return found

    async def finish(self) -> None:
        """Remove the mark and release the image, after the adoption of logs. Raises StoreError."""
        self._image = None
        if self._is_first_start:
            try:
                await self._store.multi([Delete(znodes.KRAFT_ADOPTION)])
            except NoNodeError:
                return

    def _folder(self) -> str | None:
        """Return the folder of the metadata log: in `metadata.log.dir`, or else in a log directory."""
        own = self._dynamic_config.config.get("metadata.log.dir")
        directories = [str(own), *self._log_dirs] if own else self._log_dirs
        folders = (f"{directory}/{METADATA_FOLDER}" for directory in directories)
        return next((folder for folder in folders if self._fs.is_dir(folder)), None)

    async def _read_image(self) -> MetadataImage | None:
        """Return the metadata in the folder; None without a folder, or if nothing in it can be read."""
        folder = self._folder()
        if self._image is None and folder is not None and not self._is_unreadable:
            # Most brokers never adopt anything and do not load the images.
            from ..image.metadata_image import EMPTY_IMAGE
            from .kraft_metadata_log import KraftMetadataLog

            image = EMPTY_IMAGE
            try:
                image = await KraftMetadataLog(self._fs, self._work, folder).read_image()
            except OSError as error:
                logger.warning("the metadata log in %s cannot be read: %s", folder, describe_error(error))
            self._is_unreadable = image is EMPTY_IMAGE
            if self._is_unreadable:
                logger.warning("no metadata are adopted from %s", folder)
            else:
                self._image = image
        return self._image


async def _write_nodes(store: MetadataStore, nodes: Mapping[str, bytes]) -> None:
    """Create the nodes and their missing parents, or replace the data of nodes that exist."""
    present: set[str] = {""}
    writes: list[Operation] = []
    # Parents are before their children: a path sorts before the paths that it begins.
    for path in sorted(nodes):
        parent = path.rpartition("/")[0]
        missing = []
        while parent not in present:
            present.add(parent)
            if await store.exists(parent) is None and parent not in nodes:
                missing.append(Create(parent))
            parent = parent.rpartition("/")[0]
        writes += reversed(missing)
        is_there = await store.exists(path) is not None
        writes.append(SetData(path, nodes[path]) if is_there else Create(path, nodes[path]))
        present.add(path)
        if len(writes) >= NODES_PER_WRITE:
            await store.multi(writes)
            writes = []
    if writes:
        await store.multi(writes)
