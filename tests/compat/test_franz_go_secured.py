"""franz-go by certificates, passwords and tokens: right ones, wrong ones, and those that are over or taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat.go_clients import go_client
from tests.compat.secured_attempts import check_attempts
from tests.compat.secured_world import SecuredWorld
from tests.golang import run_go

pytestmark = [pytest.mark.verify, pytest.mark.golang, pytest.mark.timeout(240)]

REFUSED = (
    "SASL_AUTHENTICATION_FAILED",
    "unexpected data in oauth response",
    "_AUTHORIZATION_FAILED",
    "tls: ",
    "TLS missing",
)


def test_franz_go_is_let_in_by_what_is_right_and_by_nothing_else(tmp_path: Path) -> None:
    program = go_client("franzgo")
    check_attempts(
        SecuredWorld(tmp_path),
        lambda attempts: run_go(program, ["secured", attempts], timeout=180),
        lambda outcome: any(reason in outcome for reason in REFUSED),
    )
