"""Every Python that is supported, as far as there is one here: a wheel is installed, tried, and tested."""

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
from tests.nightly import others_at_night
from tests.test_package import wheel

pytestmark = [pytest.mark.verify, pytest.mark.timeout(900)]
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
FROM_MAVEN = {"3.14": "org.bytedeco:cpython:3.14.3-1.5.13:linux-x86_64"}
"""Jars that hold an interpreter, for machines that have none of that version."""
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
    """An interpreter, and what is on its path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folders: list[Path] = []

    def run(self, *arguments: str) -> str:
        """What it prints, errors included."""
        library_path = str(self.path.parent.parent)  # where the one from Maven has its library
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
        """A folder with these, installed once."""
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
    """The interpreter out of a jar."""
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
            told = python.run("-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        except (AssertionError, OSError):
            continue  # a name of pyenv's for a version that is not chosen
        if told.strip() == version:
            return python
    pytest.skip(f"there is no Python {version} here")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this machine's, installed into a folder."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel(folder)) as archive:
        archive.extractall(folder / "packages")
    return folder / "packages"


@pytest.mark.parametrize("version", others_at_night((VERSIONS[0], VERSIONS[-1], *VERSIONS[1:-1]), 2))
def test_a_wheel_works_on(version: str, unpacked: Path) -> None:
    python = interpreter(version)
    optional = PROJECT["optional-dependencies"]
    requirements = (*PROJECT["dependencies"], *optional["demo"], *optional["fast-zstd"], *TOOLS)
    python.folders = [unpacked, python.packages(requirements)]
    told = python.run(*COMMAND, "--version")
    assert f"(Python {version}." in told and "compiled code" in told
    assert "compared: equal to the data, no record lost" in python.run(*COMMAND, "demo")
    tests = [str(ROOT / "tests" / name) for name in TESTS]
    told = python.run("-m", "pytest", "-q", "-o", "pythonpath=.", "-n", "0", *tests)
    assert " passed" in told and "failed" not in told
