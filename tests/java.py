"""Java for tests: jars from Maven, and small programs that are compiled against them and run.

`jars("org.apache.kafka:kafka-clients:4.4.0")` resolves the coordinates once with the system's `mvn`, and keeps the jars
in `.cache/java/` of the checkout (or `$BARNABAS_CACHE/java/`). Parallel test processes wait for each other.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.foreign_tools import cache_dir, cache_entry, digest, require_tool, run_checked

# For a short-lived JVM: no optimizing compiler, and little memory.
QUICK_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
JVM_FLAGS = (*QUICK_FLAGS, "-Xmx512m")

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""

DEPENDENCY = "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"


def require_java() -> None:
    """Skip the test if `java`, `javac` or `mvn` is not installed, or fail it with `CI=true`."""
    for tool in ("java", "javac", "mvn"):
        require_tool(tool, "these tests need a JDK 17 and Maven")


def jars(*coordinates: str) -> list[Path]:
    """Return the jars of `group:artifact:version[:classifier]` coordinates and of their runtime dependencies."""
    require_java()
    ordered = sorted(coordinates)
    name = f"{ordered[0].split(':')[1]}-{ordered[0].split(':')[2]}-{digest(*ordered)}"
    with cache_entry(cache_dir("java"), name) as (entry, scratch):
        if scratch is not None:
            pom = scratch / "pom.xml"
            pom.write_text(POM.format(dependencies="\n".join(_dependency(coordinate) for coordinate in ordered)))
            copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={scratch}"]
            run_checked(["mvn", "-q", "-B", "-f", str(pom), *copy])
    return sorted(entry.glob("*.jar"))


def _dependency(coordinate: str) -> str:
    group, artifact, version, *classifier = (escape(part) for part in coordinate.split(":"))
    extra = f"<classifier>{classifier[0]}</classifier>" if classifier else ""
    return DEPENDENCY.format(group, artifact, version, extra)


def compile_java(source_dir: Path, classpath: Sequence[Path]) -> Path:
    """Compile all `.java` files below `source_dir`, once per version, and return the folder of the classes."""
    require_java()
    sources = sorted(source_dir.rglob("*.java"))
    if not sources:
        raise FileNotFoundError(f"no .java file below {source_dir}")
    parts = [part for source in sources for part in (source.name, source.read_bytes())]
    name = f"{source_dir.name}-{digest(*parts, *(str(path) for path in classpath))}"
    with cache_entry(cache_dir("java-classes"), name) as (entry, scratch):
        if scratch is not None:
            options = ["-nowarn", "-encoding", "UTF-8", "-d", str(scratch), "-cp", join_classpath(classpath)]
            run_checked(["javac", *options, *(str(source) for source in sources)])
    return entry


MOVED_SINCE_4_4 = (
    (re.compile(r"org\.apache\.kafka\.common\.utils\.Exit\b"), "org.apache.kafka.common.utils.internals.Exit"),
    (
        re.compile(r"org\.apache\.kafka\.common\.record\.(?!TimestampType\b)"),
        "org.apache.kafka.common.record.internal.",
    ),
)
"""Patterns of Kafka classes that test programs use, and the packages of these classes since Kafka 4.4."""


def compile_for_kafka(source_dir: Path, classpath: Sequence[Path], version: str) -> Path:
    """Compile a program whose imports are the ones of Kafka before 4.4 (see `compile_java`)."""
    if tuple(map(int, version.split(".")[:2])) < (4, 4):
        return compile_java(source_dir, classpath)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / source_dir.name
        shutil.copytree(source_dir, folder)
        for source in folder.rglob("*.java"):
            text = source.read_text()
            for pattern, replacement in MOVED_SINCE_4_4:
                text = pattern.sub(replacement, text)
            source.write_text(text)
        return compile_java(folder, classpath)


def join_classpath(classpath: Sequence[Path]) -> str:
    """Return the argument of `-cp`."""
    return ":".join(str(path) for path in classpath)


def java_command(
    main: str, classpath: Sequence[Path], args: Sequence[str], flags: Sequence[str] = JVM_FLAGS
) -> list[str]:
    """Return the command line that runs the class `main`."""
    return ["java", *flags, "-cp", join_classpath(classpath), main, *args]


def run_java(
    main: str,
    classpath: Sequence[Path],
    args: Sequence[str] = (),
    stdin: str | bytes | None = None,
    timeout: float = 120,
    flags: Sequence[str] = JVM_FLAGS,
) -> subprocess.CompletedProcess[str]:
    """Run the class `main` until it exits, for at most `timeout` seconds. The caller checks the exit code.

    The output is decoded as UTF-8. `stdin` is text, or bytes that are passed unchanged.
    """
    require_java()
    data = stdin.encode() if isinstance(stdin, str) else stdin
    command = java_command(main, classpath, args, flags)
    result = subprocess.run(
        command, input=data if data is not None else b"", capture_output=True, timeout=timeout, check=False
    )
    return subprocess.CompletedProcess(
        command, result.returncode, result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace")
    )
