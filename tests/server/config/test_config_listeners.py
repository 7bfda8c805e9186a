"""Listeners as Kafka writes them: names, hosts, ports, advertised addresses, protocols."""

from __future__ import annotations

import pytest

from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.config.listeners import ListenerConfig, parse_listeners, parse_protocol_map

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INSIDE": "PLAINTEXT", "OUTSIDE": "PLAINTEXT", "SAFE": "SSL"}


def one(text: str, advertised: str | None = None) -> ListenerConfig:
    (listener,) = parse_listeners(text, advertised, PROTOCOLS)
    return listener


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("PLAINTEXT://localhost:0", "localhost", 0),
        ("plaintext://127.0.0.1:9092", "127.0.0.1", 9092),
        ("PLAINTEXT://0.0.0.0:65535", "0.0.0.0", 65535),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("PLAINTEXT://[fe80::b1da:69ca:57f7:63d8%eth0]:9092", "fe80::b1da:69ca:57f7:63d8%eth0", 9092),
        ("PLAINTEXT://[::]:9092", "::", 9092),
        ("PLAINTEXT://my-host.example_1.org:1", "my-host.example_1.org", 1),
        (" PLAINTEXT://a:1 ", "a", 1),
    ],
)
def test_an_address_is_taken_apart(text: str, host: str, port: int) -> None:
    listener = one(text)
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", host, port)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("PLAINTEXT:9092", "must be NAME://host:port"),
        ("://a:1", "must be NAME://host:port"),
        ("PLAINTEXT://a", "must be NAME://host:port"),
        ("PLAINTEXT://a b:1", "must be NAME://host:port"),
        ("PLAINTEXT://a:70000", "port 70000 must be between 0 and 65535"),
        ("PLAINTEXT://a:-1", "port -1 must be between 0 and 65535"),
        ("", "at least one listener"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", "different name"),
        ("INSIDE://a:1,OUTSIDE://b:1", "different port, 1 is used twice"),
        ("INSIDE://127.0.0.1:1,OUTSIDE://[::1]:1,PLAINTEXT://b:1", "different port"),
        ("OTHER://a:1", "no security protocol defined for listener OTHER"),
    ],
)
def test_an_error_names_the_value_and_what_is_allowed(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_listeners(text, None, PROTOCOLS)
    assert reason in str(error.value)
    assert f"Invalid value {text} for configuration listeners" in str(error.value)


def test_two_listeners_may_share_a_port_on_different_ip_versions_and_any_may_be_free() -> None:
    assert len(parse_listeners("INSIDE://127.0.0.1:9092,OUTSIDE://[::1]:9092", None, PROTOCOLS)) == 2
    assert len(parse_listeners("INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0", None, PROTOCOLS)) == 2


def test_what_is_advertised_is_what_is_written_or_else_what_is_bound() -> None:
    assert one("PLAINTEXT://127.0.0.1:0").bound(4711, "machine") == ListenerConfig(
        "PLAINTEXT", "127.0.0.1", 4711, "PLAINTEXT", "127.0.0.1", 4711
    )
    told = one("PLAINTEXT://:9092", "PLAINTEXT://kafka.example.org:443").bound(9092, "machine")
    assert (told.host, told.advertised_host, told.advertised_port) == ("", "kafka.example.org", 443)
    assert one("PLAINTEXT://:9092", "PLAINTEXT://[2001:db8::1]:443").advertised_host == "2001:db8::1"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_listener_on_all_interfaces_advertises_the_machines_name(host: str) -> None:
    told = one(f"PLAINTEXT://{host}:0").bound(5000, "machine")
    assert (told.advertised_host, told.advertised_port) == ("machine", 5000)


def test_clients_are_never_sent_to_an_address_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"advertised\.listeners.*cannot connect to 0\.0\.0\.0"):
        one("PLAINTEXT://:9092", "PLAINTEXT://0.0.0.0:9092")
    with pytest.raises(ConfigError, match=r"advertised\.listeners.*OUTSIDE is not"):
        one("PLAINTEXT://:9092", "OUTSIDE://a:9092")


def test_a_listener_of_a_controller_is_left_out_of_both_lists() -> None:
    text = "PLAINTEXT://:9092,CONTROLLER://:9093"
    listeners = parse_listeners(
        text, "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093", PROTOCOLS, {"CONTROLLER"}
    )
    assert [listener.name for listener in listeners] == ["PLAINTEXT"]
    with pytest.raises(ConfigError, match="at least one listener for clients"):
        parse_listeners("CONTROLLER://:9093", None, PROTOCOLS, {"CONTROLLER"})


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("[::1]", True),
        ("", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, loopback: bool) -> None:
    assert one(f"PLAINTEXT://{host}:1").is_loopback is loopback


def test_the_protocol_map_is_read_without_regard_to_case_and_checked() -> None:
    assert parse_protocol_map(" inside:plaintext , OUT-1:SASL_SSL,") == {"INSIDE": "PLAINTEXT", "OUT-1": "SASL_SSL"}
    for text in ("A", ":SSL", "A:TLS", "A:SSL,a:PLAINTEXT"):
        with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
            parse_protocol_map(text)


def test_a_listener_is_written_as_it_was_read() -> None:
    for text in ("PLAINTEXT://:9092", "PLAINTEXT://[::1]:9092", "PLAINTEXT://localhost:0"):
        assert str(one(text)) == text
