"""Kafka Streams 4.4.0 with `group.protocol=streams` (KIP-1071): the broker assigns the tasks and creates the topics."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.test_java import program
from tests.compat.test_kafka_streams import PARTITIONS, PATIENCE_S, App, Scene
from tests.java import java_command

from barnabas.testing import Cluster

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(400)]

STREAMS = "org.apache.kafka:kafka-streams:4.4.0"
SETTINGS = {
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "5000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.num.standby.replicas": "1",
}
KILLS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BarnabasServer(tmp_path_factory.mktemp("broker"), properties=SETTINGS) as server:
        yield server.bootstrap


class Instances:
    """Instances of the word count, each with two threads and a state directory of its own."""

    def __init__(self, bootstrap: str, scene: Scene, folder: Path) -> None:
        self._classpath = program(("streams",), STREAMS, folder)
        self._bootstrap, self._scene, self._folder = bootstrap, scene, folder
        self.apps: list[App] = []

    def start(self, state: str) -> App:
        """Start an instance on a state directory."""
        scene = self._scene
        directory = str(self._folder / f"state-{state}")
        arguments = [self._bootstrap, scene.id, scene.source, scene.sink, directory, "exactly_once_v2", "streams"]
        log = self._folder / f"app-{len(self.apps)}.log"
        self.apps.append(App(java_command("WordCount", self._classpath, arguments), log))
        return self.apps[-1]

    def kill_all(self) -> None:
        for app in self.apps:
            app.kill()


def test_words_are_counted_exactly_once_while_instances_are_killed(broker: str, tmp_path: Path) -> None:
    scene = Scene(broker)
    instances = Instances(broker, scene, tmp_path)
    try:
        running = [instances.start("a"), instances.start("b")]
        for app in running:
            app.wait_running()
        repartition, changelog = f"{scene.id}-words-repartition", f"{scene.id}-counts-changelog"
        assert scene.setting(repartition, "cleanup.policy") == "delete"
        assert scene.setting(changelog, "cleanup.policy") == "compact"
        for number in range(KILLS):
            scene.write(50)
            scene.wait_more()
            running[number % 2].kill()
            scene.write(50)
            running[number % 2] = instances.start("ab"[number % 2])
            running[number % 2].wait_running()
        scene.write(50)
        scene.wait_counted()
        for app in running:
            app.close()
    finally:
        instances.kill_all()


def test_words_are_counted_exactly_once_while_brokers_are_killed(tmp_path: Path) -> None:
    with Cluster(brokers=3, config=SETTINGS) as cluster:
        scene = Scene(cluster.bootstrap, replicas=3)
        instances = Instances(cluster.bootstrap, scene, tmp_path)
        try:
            running = [instances.start("a"), instances.start("b")]
            scene.write(50)
            for app in running:
                app.wait_running()
            # Every broker once, the coordinator of the group first: it also leads partitions, or is the controller.
            coordinator = cluster.coordinator(scene.id)
            for victim in (coordinator, *(one for one in cluster.brokers if one != coordinator)):
                scene.wait_more()
                cluster.kill(victim)
                scene.write(50)
                scene.wait_more()
                cluster.start(victim)
                for partition in range(PARTITIONS):
                    cluster.wait_for_isr(scene.source, partition, timeout=PATIENCE_S)
                scene.write(50)
            running[0].kill()
            scene.write(50)
            scene.wait_counted()
            running[1].close()
        finally:
            instances.kill_all()
