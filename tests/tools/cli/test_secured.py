"""The command line where passwords and certificates are asked for."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest
from typer.testing import CliRunner

from barnabas.testing import Broker
from barnabas.tools.cli.app import app

runner = CliRunner()


def test_commands_go_by_the_settings_of_kafkas_tools(tmp_path: Path) -> None:
    with Broker({"t": 1}, sasl={"anna": "s3cret"}, tls=True) as broker:
        file = tmp_path / "client.properties"
        settings = broker.client_settings("anna", "SCRAM-SHA-512")
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        at = ["-b", broker.bootstrap]
        listed = runner.invoke(app, ["--command-config", str(file), "topic", "list", *at, "--json"])
        assert listed.exit_code == 0, (listed.output, listed.exception)
        assert [row["topic"] for row in json.loads(listed.stdout)] == ["t"], listed.output
        written = runner.invoke(app, ["produce", "t", *at], input="hello\n", env={"BARNABAS_COMMAND_CONFIG": str(file)})
        assert written.exit_code == 0, written.output
        read = runner.invoke(app, ["--command-config", str(file), "consume", "t", *at, "-o", "beginning", "-e"])
        assert "hello" in read.stdout, read.output
        wrong = tmp_path / "wrong.properties"
        wrong.write_text(file.read_text().replace("s3cret", "wrong"))
        for words in (
            ["--command-config", str(file), "topic", "list"],
            ["topic", "list", "--command-config", str(file)],
        ):
            done = runner.invoke(app, [*words, *at], env={"BARNABAS_COMMAND_CONFIG": str(wrong)})
            assert done.exit_code == 0, "an option overrides the variable"
        refused = runner.invoke(app, ["topic", "list", *at], env={"BARNABAS_COMMAND_CONFIG": str(wrong)})
        assert refused.exit_code == 1
        file.write_text(file.read_text().replace("s3cret", "wrong"))
        refused = runner.invoke(app, ["--command-config", str(file), "topic", "list", *at])
        assert refused.exit_code == 1


def test_settings_of_one_command_line_reach_its_client() -> None:
    with Broker({"t": 1}, sasl={"anna": "s3cret"}) as broker:
        settings = broker.client_settings("anna", "PLAIN") | {"bootstrap.servers": broker.bootstrap}
        given = [word for pair in settings.items() for word in ("-X", "=".join(pair))]
        for words in (["topic", "list", *given], [*given, "topic", "list"], ["group", "list", *given]):
            done = runner.invoke(app, words, env={"BARNABAS_BOOTSTRAP_SERVER": ""})
            assert done.exit_code == 0, done.output
        for command in (["produce", "t"], ["consume", "t", "-e"], ["transactions", "list"], ["offsets", "t"]):
            done = runner.invoke(app, [*command, *given], input="hello\n")
            assert done.exit_code == 0, (command, done.output)
        measured = runner.invoke(app, ["bench", "requests", "--seconds", "0.2", "--json", *given])
        assert measured.exit_code == 0, measured.output
        told = runner.invoke(app, ["bench", "produce", "--driver", "confluent", *given])
        assert told.exit_code == 2 and "--driver raw" in told.output
        refused = runner.invoke(app, ["topic", "list", *given, "-X", "request.timeuot.ms=1"])
        assert (refused.exit_code, "request.timeout.ms?" in refused.output) == (2, True)


def test_a_file_that_says_nonsense_ends_the_command(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=TLS\n")
    for path in (file, tmp_path / "none"):
        ended = runner.invoke(app, ["--command-config", str(path), "topic", "list"])
        assert ended.exit_code == 2
        assert str(path) in ended.stderr


def test_certificates_in_one_command(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    made = runner.invoke(app, ["certs", str(folder), "--host", "127.0.0.1", "--client", "anna", "--password", "pw"])
    assert made.exit_code == 0, made.output
    names = {path.name for path in folder.iterdir()}
    assert names == {"ca.pem", "broker.pem", "broker.p12", "anna.pem", "anna.p12"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir() if path.name != "ca.pem")
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(str(folder / "anna.pem"))
    again = runner.invoke(app, ["certs", str(folder)])
    assert again.exit_code == 1 and "already" in again.stderr


@pytest.mark.parametrize("name", ["../x", "a/b", "", "broker", "ca", ".hidden"])
def test_names_of_clients_are_names_of_files_here(tmp_path: Path, name: str) -> None:
    refused = runner.invoke(app, ["certs", str(tmp_path / "certs"), "--client", name])
    assert refused.exit_code == 2
    assert not (tmp_path / "certs").exists()
