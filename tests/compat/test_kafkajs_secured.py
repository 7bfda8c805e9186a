"""kafkajs by certificates, passwords and tokens: right ones, wrong ones, and those that are over or taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat.secured_attempts import check_attempts
from tests.compat.secured_world import SecuredWorld
from tests.compat.test_kafkajs import PACKAGE
from tests.node import install_packages, run_node

pytestmark = [pytest.mark.verify, pytest.mark.node, pytest.mark.timeout(240)]

REFUSED = (
    "KafkaJSSASLAuthenticationError",
    "KafkaJSConnectionError",
    "KafkaJSNonRetriableError",
    "KafkaJSNumberOfRetries",
)


def test_kafkajs_is_let_in_by_what_is_right_and_by_nothing_else(tmp_path: Path) -> None:
    folder = install_packages(PACKAGE)
    check_attempts(
        SecuredWorld(tmp_path),
        lambda attempts: run_node(folder, "secured.js", [attempts], timeout=180),
        lambda outcome: outcome.startswith(REFUSED),
    )
