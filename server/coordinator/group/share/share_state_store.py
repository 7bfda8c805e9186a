"""The access of the group coordinator to the share coordinator."""

from __future__ import annotations

from typing import Protocol

from .....protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from .....protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from .....protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)


class ShareStateStore(Protocol):
    """The methods of `server/share/persister.py`, a package above this one, that the group coordinator calls.

    Errors are reported for each partition of a response; no method raises.
    """

    async def initialize_state(
        self, request: InitializeShareGroupStateRequest
    ) -> InitializeShareGroupStateResponse: ...

    async def delete_state(self, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse: ...

    async def read_state_summary(
        self, request: ReadShareGroupStateSummaryRequest
    ) -> ReadShareGroupStateSummaryResponse: ...
