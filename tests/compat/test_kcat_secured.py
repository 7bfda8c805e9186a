"""kcat by certificates, passwords and tokens: right ones, wrong ones, and those that are over or taken back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.compat.one_record import WRITTEN
from tests.compat.secured_attempts import check_attempts
from tests.compat.secured_world import SecuredWorld
from tests.compat.test_oauthbearer import HANDLER, LISTENER, RULES, UNSECURED
from tests.foreign_tools import require_tool
from tests.identity_provider import IdentityProvider

from barnabas.testing import Broker, Clock

pytestmark = [pytest.mark.verify, pytest.mark.timeout(400)]

PATIENCE = 60
REFUSED = ("Authentication failed", "Topic authorization failed", "SSL alert number")


def written(bootstrap: str, settings: dict[str, str]) -> str:
    """One record by kcat; what it says if there comes nothing of it."""
    command = [require_tool("kcat", "apt-get install kcat"), "-b", bootstrap, "-P", "-t", "t"]
    settings = settings | {"message.timeout.ms": str(PATIENCE * 1000)}
    command += [part for pair in settings.items() for part in ("-X", "=".join(pair))]
    result = subprocess.run(command, input="v", capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    return WRITTEN if result.returncode == 0 else result.stderr


def settings_of(attempt: dict[str, Any]) -> dict[str, str]:
    own, sasl = attempt["ssl"].get("own"), attempt.get("sasl")
    settings = {"security.protocol": "SASL_SSL" if sasl else "SSL", "ssl.ca.location": attempt["ssl"]["ca"]}
    if own:
        settings |= {"ssl.certificate.location": own, "ssl.key.location": own}
    if sasl:
        settings |= {"sasl.mechanism": sasl["mechanism"].upper()}
        settings |= {"sasl.username": sasl["username"], "sasl.password": sasl["password"]}
    return settings


def run(attempts: str) -> CompletedProcess[str]:
    """Make the attempts that programs of other clients make themselves."""
    outcomes = [written(one["bootstrap"], settings_of(one)) for one in json.loads(attempts)]
    return CompletedProcess([], 0, json.dumps(outcomes), "")


def test_kcat_is_let_in_by_what_is_right_and_by_nothing_else(tmp_path: Path) -> None:
    """Debian's librdkafka repeats its nonce in the proof of SCRAM."""
    check_attempts(
        SecuredWorld(tmp_path), run, lambda outcome: any(one in outcome for one in REFUSED), shows_tokens=False
    )


def by_own_token(broker: Broker, user: str) -> str:
    """By one that kcat makes and nobody signs: Debian's has no other."""
    return written(
        broker.bootstrap,
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={user}",
        },
    )


def test_a_token_of_kcats_own_is_believed_where_that_is_asked_for(tmp_path: Path) -> None:
    clock = Clock()
    with Broker({"t": 1}, config=RULES | {HANDLER: UNSECURED}, clock=clock) as broker:
        assert by_own_token(broker, "anna") == WRITTEN
        assert "Topic authorization failed" in by_own_token(broker, "eve")
        clock.advance(hours=2)
        assert "invalid_token" in by_own_token(broker, "anna")
        assert len(broker.records("t")) == 1
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(IdentityProvider().key_set()))
    signed = {f"{LISTENER}.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}
    with Broker({"t": 1}, config=RULES | signed) as broker:
        assert "invalid_token" in by_own_token(broker, "anna")
        assert not broker.records("t")
