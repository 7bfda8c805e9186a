"""A wheel works on every supported Python version that is installed on this machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.foreign_tools import cache_dir, cache_entry, digest, run_checked
from tests.java import jars
from tests.nightly import mark_rest_nightly
from tests.test_package import wheel

pytestmark = [pytest.mark.verify, pytest.mark.timeout(900)]
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
FROM_MAVEN = {"3.14": "org.bytedeco:cpython:3.14.3-1.5.13:linux-x86_64"}
"""Jars that contain an interpreter, for machines that do not have this version."""
TOOLS = (
    "hypothesis>=6.100",
    "lz4>=4.3",
    "pytest>=8",
    "pytest-asyncio>=0.25",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
)
TESTS = ("testing/test_contents.py", "protocol/test_codec.py", "protocol/test_records_compression.py")
COMMAND = ("-c", "import sys; from barnabas.tools.cli import main; sys.exit(main())")


class Python:
    """An interpreter, and the folders of its PYTHONPATH."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folders: list[Path] = []

    def run(self, *arguments: str) -> str:
        """Run the interpreter, and return its output and errors."""
        library_path = str(self.path.parent.parent)  # the folder of libpython for the interpreter from Maven
        python_path = os.pathsep.join(map(str, self.folders))
        done = subprocess.run(
            [str(self.path), *arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": python_path, "LD_LIBRARY_PATH": library_path, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def packages(self, requirements: Sequence[str]) -> Path:
        """Install packages into a cached folder, and return the folder."""
        name = f"packages-{digest(*requirements, self.run('-VV'))}"
        with cache_entry(cache_dir("python"), name) as (entry, scratch):
            if scratch is not None:
                self.run("-m", "pip", "install", "--quiet", "--target", str(scratch), *requirements)
        return entry


def candidates(version: str) -> Iterator[Path]:
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        yield Path(sys.executable)
    if (found := shutil.which(f"python{version}")) is not None:
        yield Path(found)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from root.glob(f"versions/{version}.*/bin/python")
    if (
        version in FROM_MAVEN
        and shutil.which("mvn")
        and platform.system() == "Linux"
        and platform.machine() == "x86_64"
    ):
        yield from_maven(FROM_MAVEN[version], version)


def from_maven(coordinate: str, version: str) -> Path:
    """Return the interpreter of a jar."""
    (jar,) = [path for path in jars(coordinate) if path.name.endswith("-linux-x86_64.jar") and "cpython" in path.name]
    with cache_entry(cache_dir("python"), jar.stem) as (entry, scratch):
        if scratch is not None:
            run_checked(["unzip", "-q", str(jar), "-d", str(scratch)])
    interpreter = entry / "org/bytedeco/cpython/linux-x86_64/bin" / f"python{version}"
    interpreter.chmod(0o755)
    return interpreter


def interpreter(version: str) -> Python:
    for path in candidates(version):
        python = Python(path)
        try:
            output = python.run("-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        except (AssertionError, OSError):
            continue  # a shim of pyenv for a version that is not selected
        if output.strip() == version:
            return python
    pytest.skip(f"Python {version} is not installed")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel for this machine, and unpack it into a folder."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel(folder)) as archive:
        archive.extractall(folder / "packages")
    return folder / "packages"


@pytest.mark.parametrize("version", mark_rest_nightly((VERSIONS[0], VERSIONS[-1], *VERSIONS[1:-1]), 2))
def test_a_wheel_works_on(version: str, unpacked: Path) -> None:
    python = interpreter(version)
    optional = PROJECT["optional-dependencies"]
    requirements = (*PROJECT["dependencies"], *optional["demo"], *optional["fast-zstd"], *TOOLS)
    python.folders = [unpacked, python.packages(requirements)]
    output = python.run(*COMMAND, "--version")
    assert f"(Python {version}." in output and "compiled code" in output
    assert "compared: equal to the data, no record lost" in python.run(*COMMAND, "demo")
    tests = [str(ROOT / "tests" / name) for name in TESTS]
    output = python.run("-m", "pytest", "-q", "-o", "pythonpath=.", "-n", "0", *tests)
    assert " passed" in output and "failed" not in output
