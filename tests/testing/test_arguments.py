"""What a test says of its broker is taken as Python has it, or refused in words that help, with the test's own line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Broker, KafkaError
from barnabas.testing.security import BrokerAccess

REMOVED_S = 60


@pytest.mark.parametrize("topics", ["orders", b"orders"])
def test_one_name_is_no_list_of_names(topics: Any) -> None:
    with pytest.raises(TypeError, match=r"is a single name; a list of names is topics=\["):
        Broker(topics)


@pytest.mark.parametrize(
    ("topics", "error", "said"),
    [
        ({"t": 0}, ValueError, "expected at least one partition"),
        ({"t": True}, TypeError, "not a valid number of partitions"),
        ({"t": "3"}, TypeError, "not a valid number of partitions"),
        ([3], TypeError, "3 is not a valid topic name"),
    ],
)
def test_topics_that_make_no_sense(topics: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Broker(topics)


def test_settings_as_python_has_them() -> None:
    config: dict[str, Any] = {
        "message.max.bytes": 2_000_000,
        "auto.create.topics.enable": False,
        "log.cleanup.policy": ["compact", "delete"],
        "group.initial.rebalance.delay.ms": None,
        "log.cleaner.io.buffer.load.factor": 0.8,
        "confluent.support.metrics.enable": False,
    }
    with Broker(config=config) as broker:
        found = broker.server.config
        assert found.message_max_bytes == 2_000_000
        assert found.auto_create_topics_enable is False
        assert found.log_cleanup_policy == ("compact", "delete")
        assert found.group_initial_rebalance_delay_ms == 3000, "None is Kafka's default, not the kit's"
        assert found.log_cleaner_io_buffer_load_factor == 0.8


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("message.max.byte", "did you mean 'message.max.bytes'?"),
        ("message_max_bytes", "did you mean 'message.max.bytes'?"),
        ("retention.ms", "it is a setting of a topic, .* for all topics it is 'log.retention.ms'"),
        ("zzz", "unknown setting of a broker: 'zzz'$"),
    ],
)
def test_a_setting_that_nobody_knows(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Broker(config={name: 1})


def test_a_value_that_is_none() -> None:
    with pytest.raises(TypeError, match=r"message\.max\.bytes: \{\} is a dict"):
        Broker(config={"message.max.bytes": {}})  # type: ignore[dict-item]
    with Broker() as broker, pytest.raises(KafkaError, match=r"did you mean 'retention\.ms'"):
        broker.create_topic("t", config={"retention.mss": 5})


def frames(action: Callable[[], object]) -> list[traceback.FrameSummary]:
    try:
        action()
    except Exception as error:
        return traceback.extract_tb(error.__traceback__)
    raise AssertionError("nothing was raised")


def test_an_error_is_told_with_the_line_of_the_test() -> None:
    with Broker() as broker:
        found = frames(lambda: broker.create_topic("not a name"))
        assert [Path(one.filename).name for one in found[:-1]] == ["test_arguments.py"] * (len(found) - 1)
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION") as caught:
            broker.create_topic("not a name")
        assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_methods_of_the_other_kind_say_which_to_take() -> None:
    with pytest.raises(RuntimeError, match="is not running"):
        Broker().create_topic("t")


async def test_on_the_callers_loop_the_methods_begin_with_an_a() -> None:
    async with Broker() as broker:
        with pytest.raises(RuntimeError, match="await the method with an a before it"):
            broker.create_topic("t")
        await broker.acreate_topic("t")
        assert broker.has_topic("t")
        with pytest.raises(RuntimeError, match="is running"):
            await broker.__aenter__()
        assert broker.has_topic("t")


def test_start_and_stop_without_a_with() -> None:
    broker = Broker(topics=["t"])
    broker.start()
    with pytest.raises(RuntimeError, match="is running"):
        broker.start()
    broker.stop()
    broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        broker.faults.sessions_expire("g")
    with broker:
        assert broker.has_topic("t")


@pytest.mark.skipif(not Path("/bin/sh").exists(), reason="without a shell nobody cleans up after a kill")
def test_a_killed_run_leaves_no_folder_behind(tmp_path: Path) -> None:
    program = "from barnabas import Broker\nbroker = Broker(['t']); broker.start(); print('up', flush=True); input()"
    run = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        (folder,) = tmp_path.iterdir()
        assert (folder / "t-0").is_dir()
        run.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + REMOVED_S
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_that_was_given_stays(tmp_path: Path) -> None:
    with Broker(["t"], data_dir=tmp_path / "data"):
        assert (tmp_path / "data" / "t-0").is_dir()
    assert (tmp_path / "data" / "t-0").is_dir()
    assert not list(Path(tempfile.gettempdir()).glob(f"barnabas-{os.getpid()}-*"))


def test_settings_of_a_user_who_is_not_there() -> None:
    with pytest.raises(KeyError, match=r"unknown user 'bob'\. Expected one of alice"):
        BrokerAccess({"alice": "secret"}, tls=False).client_settings("bob", "PLAIN")
