"""The published package: its metadata, its links and its wheels."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest
from hatch_build import with_whole_links
from tests.foreign_tools import cache_dir, cache_entry, run_checked

ROOT = Path(__file__).parent.parent
ROOMS = (
    "common", "protocol", "storage", "server", "clients", "arrow", "spark", "table", "tools", "testing", "simulation",
)  # fmt: skip
PUBLISHED = "https://example.org/barnabas"
WAIT_S = 300
MACHINES = {"x86_64": 62, "aarch64": 183}
"""The machine types of ELF files (`e_machine`)."""
CRC32CX = 0x9AC05C00, 0xFFE0FC00
"""The arm64 instruction that adds eight bytes to a CRC-32C, and the mask of its bits without the registers."""


def wheel(folder: Path, **environment: str) -> Path:
    """Build a wheel and return its path. The build must leave no file in the temporary folder."""
    temporary = folder / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary), **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert list(temporary.iterdir()) == []
    (built,) = folder.glob("*.whl")
    return built


def test_links_to_files_become_absolute_or_plain_text() -> None:
    text = "see [docs/spark.md](docs/spark.md), [a part](#part) and [others](https://example.org/)"
    assert with_whole_links(text, "https://x/y") == text.replace("(docs/", "(https://x/y/docs/")
    assert with_whole_links(text, "") == text.replace("[docs/spark.md](docs/spark.md)", "docs/spark.md")


def test_images_link_to_the_raw_file_or_are_omitted() -> None:
    text = "before\n\n![The console](docs/console.png)\n\nafter [a page](docs/a.md)"
    base = "https://x/y/blob/v1"
    whole = with_whole_links(text, base)
    assert "![The console](https://x/y/raw/v1/docs/console.png)\n\nafter" in whole
    assert f"[a page]({base}/docs/a.md)" in whole
    assert with_whole_links(text, "") == "before\n\nafter a page"


def test_files_linked_in_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\((?![a-z]+:|#)([^)\s]+)\)", text)
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


def test_a_wheel_built_without_a_compiler_is_pure_python(tmp_path: Path) -> None:
    built = wheel(tmp_path, CC="false", BARNABAS_REPOSITORY=PUBLISHED)
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
        assert not [name for name in archive.namelist() if name.endswith(".so")]
        assert {"index.html", "app.js", "style.css"} <= {Path(name).name for name in archive.namelist()}
        assert {f"barnabas/{room}/__init__.py" for room in ROOMS} <= set(archive.namelist())
    assert f"Homepage, {PUBLISHED}" in metadata.get_all("Project-URL", [])
    assert "](docs/" not in metadata.get_payload()
    assert f"]({PUBLISHED}/blob/v{metadata['Version']}/docs/spark.md)" in metadata.get_payload()
    needed = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert needed
    assert not [need for need in needed if need.startswith(("pydantic", "zstandard"))], "they are large"


def test_a_platform_wheel_without_a_compiler_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="has compiled code, and none could be made"):
        wheel(tmp_path, CC="false", BARNABAS_WHEEL_PLATFORM="manylinux_2_17_x86_64")
    assert list(tmp_path.glob("*.whl")) == []


@pytest.mark.verify
def test_a_platform_wheel_has_compiled_code(tmp_path: Path) -> None:
    built = wheel(tmp_path, BARNABAS_WHEEL_PLATFORM="manylinux_2_17_x86_64")
    assert built.name.endswith("-cp311-abi3-manylinux_2_17_x86_64.whl")
    with zipfile.ZipFile(built) as archive:
        assert "barnabas/protocol/_speedups.abi3.so" in archive.namelist()


def wheels_of_the_makefile() -> Iterator[tuple[str, str]]:
    """Yield the compiler target and the platform tag of each wheel."""
    text = re.search(r"^WHEELS := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.M)
    assert text is not None
    for pair in text[1].replace("\\\n", " ").split():
        target, _, platform = pair.partition("=")
        yield target, platform


@pytest.mark.verify
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("target", "platform"), [*wheels_of_the_makefile()])
def test_compiled_code_is_for_the_machine_of_the_wheel(target: str, platform: str, tmp_path: Path) -> None:
    with cache_entry(cache_dir("python"), "ziglang-0.17.1") as (zig, scratch):
        if scratch is not None:
            run_checked([sys.executable, "-m", "pip", "install", "-q", "--target", str(scratch), "ziglang==0.17.1"])
    compiler = f"env PYTHONPATH={zig} {sys.executable} -m ziglang cc -target {target} -s"
    built = wheel(tmp_path, CC=compiler, BARNABAS_WHEEL_PLATFORM=platform)
    assert built.name.endswith(f"-cp311-abi3-{platform}.whl")
    with zipfile.ZipFile(built) as archive:
        code = archive.read("barnabas/protocol/_speedups.abi3.so")
    assert code[18] == MACHINES[platform.partition("_")[2].split("_", 2)[2]]
    versions = {tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", code)}
    assert versions if platform.startswith("many") else not versions
    assert max(versions, default=(0, 0)) <= (2, 17), "systems with an older glibc are supported"
    if platform.endswith("_aarch64"):
        bits, mask = CRC32CX
        words = struct.iter_unpack("<I", code[: len(code) & ~3])
        assert any(word & mask == bits for (word,) in words), "the CRC-32C instruction is missing"
