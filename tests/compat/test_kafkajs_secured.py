"""kafkajs by certificates, passwords and tokens: right ones, wrong ones, and those that are over or taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.compat.secured_world import PASSWORD, SCRAM, SecuredWorld
from tests.compat.test_kafkajs import PACKAGE
from tests.node import installed, run_node

pytestmark = [pytest.mark.verify, pytest.mark.node, pytest.mark.timeout(240)]

REFUSED = (
    "KafkaJSSASLAuthenticationError",
    "KafkaJSConnectionError",
    "KafkaJSNonRetriableError",
    "KafkaJSNumberOfRetries",
)


def outcomes(world: SecuredWorld, attempts: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By the name of the attempt."""
    folder = installed(PACKAGE)
    common = {"topic": "t", "ssl": {"ca": str(world.ca)}}
    result = run_node(folder, "secured.js", [json.dumps([common | one for one in attempts.values()])], timeout=180)
    assert result.returncode == 0, result.stderr
    return dict(zip(attempts, json.loads(result.stdout), strict=True))


def by_password(world: SecuredWorld, mechanism: str, user: str, password: str) -> dict[str, Any]:
    login = {"mechanism": mechanism.lower(), "username": user, "password": password}
    return {"bootstrap": world.address("SASL"), "sasl": login}


def test_kafkajs_is_let_in_by_what_is_right_and_by_nothing_else(tmp_path: Path) -> None:
    world = SecuredWorld(tmp_path)
    with world.serving() as broker:
        mechanisms = ("PLAIN", *SCRAM)
        attempts = {
            f"{mechanism} {kind}": by_password(world, mechanism, *login)
            for mechanism in mechanisms
            for kind, login in {
                "right": ("anna", PASSWORD),
                "wrong": ("anna", "wrong"),
                "unknown": ("nobody", PASSWORD),
                "eve": ("eve", PASSWORD),
            }.items()
        }
        for kind, token in world.tokens().items():
            sasl = {"mechanism": "oauthbearer", "token": token}
            attempts[f"token {kind}"] = {"bootstrap": world.address("SASL"), "sasl": sasl}
        for name in ("anna", "forged", "expired", "eve"):
            ssl = {"ca": str(world.ca), "own": str(tmp_path / f"{name}.pem")}
            attempts[f"certificate {name}"] = {"bootstrap": world.address("MUTUAL"), "ssl": ssl}
        attempts["certificate none"] = {"bootstrap": world.address("MUTUAL")}
        found = outcomes(world, attempts)
        right = {name for name in attempts if name.endswith("right") or name == "certificate anna"}
        assert {name for name, outcome in found.items() if outcome == "written"} == right
        assert all(outcome.startswith(REFUSED) for name, outcome in found.items() if name not in right), found
        assert "authoriz" in found["PLAIN eve"].lower()
        assert len(broker.records("t")) == len(right)
        world.revoke()
        taken_back = {one: by_password(world, one, "anna", PASSWORD) for one in mechanisms}
        assert all(outcome.startswith(REFUSED) for outcome in outcomes(world, taken_back).values())
        assert len(broker.records("t")) == len(right)
