"""Variables in server.properties, and Kafka's config providers."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.common.properties import format_properties
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.config_transformer import new_config_transformer
from barnabas.server.config.keys.validators import ConfigError

PACKAGE = "org.apache.kafka.common.config.provider"
FILE, DIRECTORY, ENV = "FileConfigProvider", "DirectoryConfigProvider", "EnvVarConfigProvider"


def provided(name: str, kind: str, **parameters: str) -> dict[str, str]:
    """The settings of one provider."""
    given = {f"config.providers.{name}.param.{key.replace('_', '.')}": text for key, text in parameters.items()}
    return {"config.providers": name, f"config.providers.{name}.class": f"{PACKAGE}.{kind}", **given}


def resolved(value: str, providers: dict[str, str], **environment: str) -> str:
    return new_config_transformer(providers, environment).transform({"x": value})["x"]


def test_values_of_files(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text("user=bob\npassword = gr\u00fcn:1 \nnested=${file:x:y}\n", encoding="utf-8")
    providers = provided("file", FILE)
    assert resolved(f"u=${{file:{file}:user}} p=${{file:{file}:password}};", providers) == "u=bob p=gr\u00fcn:1 ;"
    assert resolved(f"${{file:{file}:nested}}", providers) == "${file:x:y}"
    for unchanged in (f"${{file:{file}:missing}}", "${other:x}", "${file:x}", "${}", "$file", "${file"):
        assert resolved(unchanged, providers) == unchanged


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^Could not read properties from file {tmp_path}/none$"):
        resolved(f"${{file:{tmp_path}/none:x}}", provided("file", FILE))


@pytest.mark.parametrize("kind", [FILE, DIRECTORY])
def test_paths_that_are_not_allowed_have_no_values(tmp_path: Path, kind: str) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("f=1")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    providers = provided("p", kind, allowed_paths=f"{tmp_path}/in,{tmp_path}/in")
    name = "/f" if kind == FILE else ""
    value = "1" if kind == FILE else "f=1"
    assert resolved(f"${{p:{tmp_path}/in{name}:f}}", providers) == value
    for refused in ("out", "in/../out", "in/link", "none"):
        variable = f"${{p:{tmp_path}/{refused}{name}:f}}"
        assert resolved(variable, providers) == variable


@pytest.mark.parametrize(("paths", "problem"), [("in", "is not absolute"), ("/no/such/path", "does not exist")])
def test_invalid_allowed_paths(paths: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"Path {paths} {problem}"):
        resolved("", provided("file", FILE, allowed_paths=paths))


def test_values_of_directories(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"secret\r\n")
    (tmp_path / "folder").mkdir()
    providers = provided("d", DIRECTORY)
    assert resolved(f"${{d:{tmp_path}:password}}", providers) == "secret\r\n"
    for key in ("folder", "missing", "..", "folder/../password"):
        variable = f"${{d:{tmp_path}:{key}}}"
        assert resolved(variable, providers) == variable
    assert resolved(f"${{d:{tmp_path}/password:x}}", providers) == f"${{d:{tmp_path}/password:x}}"


def test_values_of_the_environment() -> None:
    providers = provided("env", ENV, allowlist_pattern="KAFKA_.*")
    assert resolved("${env:KAFKA_A}${env:A}${env:KAFKA_B}", providers, KAFKA_A="1", A="2") == "1${env:A}${env:KAFKA_B}"
    with pytest.raises(ConfigError, match="Path is not supported for EnvVarConfigProvider, invalid value 'x'"):
        resolved("${env:x:y}", providers)
    with pytest.raises(ConfigError, match=r"Invalid value [(] for configuration allowlist.pattern"):
        resolved("", provided("env", ENV, allowlist_pattern="("))


def test_unknown_classes_are_refused_and_names_without_a_class_ignored() -> None:
    with pytest.raises(ConfigError, match="Could not load config provider class or one of its dependencies"):
        resolved("", provided("vault", "com.example.Vault"))
    assert resolved("${a:b}", {"config.providers": "a"}) == "${a:b}"


def test_the_configuration_of_a_broker_has_the_values(tmp_path: Path) -> None:
    (tmp_path / "partitions").write_text("7")
    file = tmp_path / "server.properties"
    properties = {**provided("d", DIRECTORY), "num.partitions": f"${{d:{tmp_path}:partitions}}"}
    file.write_text(format_properties(properties))
    config = BrokerConfig.from_file(file)
    assert config.num_partitions == 7
    assert config.startup_warnings == BrokerConfig({}).startup_warnings
    with pytest.raises(ConfigError):
        BrokerConfig(properties)
