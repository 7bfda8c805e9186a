"""UpdateFeatures (key 57): changes the levels of cluster features (KIP-584); `transaction.version` has several.

Version 0 allows or forbids downgrades, 1 has the type of upgrade and can validate only (KIP-778); since 2 a success has
no results for single features. Either all updates are made or none.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ...controller.kafka_controller import KafkaController
from ...metadata.cluster_features import ClusterFeatures, FeatureUpdate, UpgradeType
from ..request_context import RequestContext

FIRST_VERSION_WITH_TYPES = 1
MOST = 100
"""Updates in one request: more than there are features."""


async def handle(
    ctx: RequestContext, request: UpdateFeaturesRequest, *, controller: KafkaController, features: ClusterFeatures
) -> UpdateFeaturesResponse:
    """Raises KafkaError NOT_CONTROLLER, INVALID_REQUEST, INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED.

    REQUEST_TIMED_OUT, too: the update may still be made.
    """
    if not controller.is_active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
    if len(request.feature_updates) > MOST:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{len(request.feature_updates)} updates exceed the number of features."
        )
    updates = {
        one.feature: FeatureUpdate(one.max_version_level, _type_of(one, ctx.api_version))
        for one in request.feature_updates
    }
    await features.update(updates, validate_only=request.validate_only, timeout_ms=request.timeout_ms)
    return UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=name) for name in updates])


def _type_of(update: FeatureUpdateKey, version: int) -> int:
    if version >= FIRST_VERSION_WITH_TYPES:
        return update.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
