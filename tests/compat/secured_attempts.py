"""Everything that a client can show a secured broker, told to a program as one list in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

from tests.compat.secured_world import PASSWORD, SCRAM, SecuredWorld

Attempts = dict[str, dict[str, Any]]
MECHANISMS = ("PLAIN", *SCRAM)
LOGINS = {
    "right": ("anna", PASSWORD),
    "wrong": ("anna", "wrong"),
    "unknown": ("nobody", PASSWORD),
    "eve": ("eve", PASSWORD),
}


def check_attempts(
    world: SecuredWorld,
    run: Callable[[str], CompletedProcess[str]],
    is_refusal: Callable[[str], bool],
    *,
    shows_tokens: bool = True,
) -> None:
    """Have a program write a record by each way: the right ones are let in, and after that they are taken back.

    The program gets a list of attempts (`topic`, `bootstrap`, `ssl` with paths, `sasl`), and prints as many outcomes.
    """
    with world.serving() as broker:
        attempts = _attempts(world)
        if not shows_tokens:
            attempts = {name: attempt for name, attempt in attempts.items() if not name.startswith("token")}
        found = _outcomes(world, run, attempts)
        right = {name for name in attempts if name.endswith("right") or name == "certificate anna"}
        assert {name for name, outcome in found.items() if outcome == "written"} == right, found
        assert all(is_refusal(outcome) for name, outcome in found.items() if name not in right), found
        assert "authoriz" in found["PLAIN eve"].lower()
        assert len(broker.records("t")) == len(right)
        world.revoke()
        taken_back = {mechanism: _by_password(world, mechanism, "anna", PASSWORD) for mechanism in MECHANISMS}
        found = _outcomes(world, run, taken_back)
        assert all(is_refusal(outcome) for outcome in found.values()), found
        assert len(broker.records("t")) == len(right)


def _attempts(world: SecuredWorld) -> Attempts:
    attempts = {
        f"{mechanism} {kind}": _by_password(world, mechanism, *login)
        for mechanism in MECHANISMS
        for kind, login in LOGINS.items()
    }
    for kind, token in world.tokens().items():
        sasl = {"mechanism": "oauthbearer", "token": token}
        attempts[f"token {kind}"] = {"bootstrap": world.address("SASL"), "sasl": sasl}
    for name in ("anna", "forged", "expired", "eve"):
        ssl = {"ca": str(world.ca), "own": str(world.folder / f"{name}.pem")}
        attempts[f"certificate {name}"] = {"bootstrap": world.address("MUTUAL"), "ssl": ssl}
    attempts["certificate none"] = {"bootstrap": world.address("MUTUAL")}
    return attempts


def _by_password(world: SecuredWorld, mechanism: str, user: str, password: str) -> dict[str, Any]:
    login = {"mechanism": mechanism.lower(), "username": user, "password": password}
    return {"bootstrap": world.address("SASL"), "sasl": login}


def _outcomes(world: SecuredWorld, run: Callable[[str], CompletedProcess[str]], attempts: Attempts) -> dict[str, str]:
    common = {"topic": "t", "ssl": {"ca": str(world.ca)}}
    result = run(json.dumps([common | one for one in attempts.values()]))
    assert result.returncode == 0, result.stderr
    return dict(zip(attempts, json.loads(result.stdout), strict=True))
