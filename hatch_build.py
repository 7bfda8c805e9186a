"""What is special about building the package: compiled code, and a README whose links lead somewhere on an index.

`protocol/speedups/` is compiled where there is a C compiler; without one nothing is lost. Everything compiled has a
twin in Python, so an installation without it is slower and otherwise the same. `make wheels` has it compiled for other
machines than this one: `CC` is then a compiler for them and `BARNABAS_WHEEL_PLATFORM` the platform of the wheel's tag.

`BARNABAS_REPOSITORY` is where the project is published, as an address that `/blob/v1.2.3/docs/spark.md` can follow.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCES = "protocol/speedups"
VERSION_FILE = ".src/barnabas/__init__.py"
_LINK_TO_A_FILE = re.compile(r"(?<!!)\[([^][]+)\]\((?![a-z]+:|#)([^)\s]+)\)")
_IMAGE_OF_A_FILE = re.compile(r"!\[([^][]*)\]\((?![a-z]+:|#)([^)\s]+)\)\n*")
IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
"""A free-threaded Python has no stable ABI."""
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") if IS_FREE_THREADED else ".abi3.so"
STABLE_ABI = 0x030B0000
NAMED_PLATFORM = "BARNABAS_WHEEL_PLATFORM"


class SpeedupsHook(BuildHookInterface[Any]):
    """Puts the extension into a wheel, or beside its stub in the checkout for an editable installation."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        name = f"_speedups{SUFFIX}"
        checkout = Path(self.root) / "protocol"
        rooms = checkout.parent if checkout.is_dir() else Path(self.root) / ".src" / "barnabas"
        if version == "editable":
            compile_extension(rooms / SOURCES, rooms / "protocol" / name, strict=True)
            return
        self._folder = tempfile.TemporaryDirectory(prefix="barnabas-build-")
        output = Path(self._folder.name) / name
        if compile_extension(rooms / SOURCES, output, strict=NAMED_PLATFORM in os.environ):
            build_data["force_include"][str(output)] = f"barnabas/protocol/{name}"
            build_data["pure_python"] = False
            build_data["tag"] = wheel_tag()
        elif NAMED_PLATFORM in os.environ:
            raise RuntimeError(f"a wheel for {os.environ[NAMED_PLATFORM]} has compiled code, and none could be made")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()


class PublishedHook(MetadataHookInterface):
    """The README and the addresses of the project as an index shows them."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = os.environ.get("BARNABAS_REPOSITORY", "").rstrip("/")
        version = re.search(r'__version__ = "(.+)"', (Path(self.root) / VERSION_FILE).read_text(encoding="utf-8"))
        assert version is not None
        shown = f"{repository}/blob/v{version[1]}" if repository else ""
        metadata["readme"] = {"content-type": "text/markdown", "text": with_whole_links(text, shown)}
        metadata["urls"] = {
            name: f"{repository}/{path}".rstrip("/")
            for name, path in {
                "Homepage": "",
                "Documentation": f"blob/v{version[1]}/README.md#find-your-way",
                "Issues": "issues",
                "Changelog": f"blob/v{version[1]}/CHANGELOG.md",
            }.items()
            if repository
        }


def with_whole_links(text: str, base: str) -> str:
    """Return the text with links to files below `base`, or without links if there is none.

    An image needs the address of its bytes (`raw` instead of `blob`); without a base it is omitted.
    """

    def whole(link: re.Match[str]) -> str:
        return f"[{link[1]}]({base}/{link[2]})" if base else link[1]

    def shown(image: re.Match[str]) -> str:
        return f"![{image[1]}]({base.replace('/blob/', '/raw/')}/{image[2]})\n\n" if base else ""

    return _LINK_TO_A_FILE.sub(whole, _IMAGE_OF_A_FILE.sub(shown, text))


def wheel_tag() -> str:
    """Any Python from 3.11 on, on machines like this one, or those that the wheel is made for."""
    platform = os.environ.get(NAMED_PLATFORM) or sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if IS_FREE_THREADED:
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        return f"{python}-{python}t-{platform}"
    return f"cp311-abi3-{platform}"


def compile_extension(sources: Path, output: Path, *, strict: bool) -> bool:
    """Compile the extension and report whether that succeeded; prints one line either way.

    With `strict` a warning is an error. A user's `pip install` of the sdist is not strict: a newer compiler may have
    more warnings, and those must not cost the user the compiled code.
    """
    if sys.implementation.name != "cpython":
        print("barnabas: no compiled speedups for this Python")
        return False
    temporary = output.with_name(f"{output.name}.{os.getpid()}")
    command = [
        *shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"),
        *("-O3", "-fPIC", "-pthread", "-shared", "-Wall", "-Wextra", "-Wconversion", *(["-Werror"] if strict else [])),
        *shlex.split(os.environ.get("CFLAGS", "")),
        *(["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []),
        *([] if IS_FREE_THREADED else [f"-DPy_LIMITED_API={STABLE_ABI:#x}"]),
        *(f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")),
        *sorted(str(source) for source in sources.glob("*.c")),
        *("-o", str(temporary)),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - the compiler of whoever builds
        temporary.replace(output)
    except OSError as error:
        print(f"barnabas: no compiled speedups, Python does the same more slowly ({error})")
        return False
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"{command[0]} failed with {error.returncode}"]
        said = next((line for line in lines if "error:" in line), lines[0])
        print(f"barnabas: no compiled speedups, Python does the same more slowly ({said})")
        return False
    print("barnabas: compiled speedups")
    return True
