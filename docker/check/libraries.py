"""Checks with test libraries that start an image of Kafka: testcontainers for Java, Python, Go and Node.

Each folder of libraries/ is a small project with pinned versions. Its program starts the image with the classes of the
library, sends records through the address that the library returns, and stops the container. Only the name of the image
differs from a program for an image of Kafka.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine import run, say
from images import ROOT

PROJECTS = ROOT / "docker/check/libraries"
# Each library reads the version of Kafka from the tag. No image of another project has these tags.
NAMES = (
    "apache/kafka:4.99.0",
    "apache/kafka-native:4.99.0",
    "confluentinc/confluent-local:7.99.0",
    "confluentinc/cp-kafka:7.99.0",
    "confluentinc/cp-kafka:8.99.0",
)
PYTHON = "venv/bin/python"
COMMANDS = {
    "java": [["mvn", "-q", "-B", "compile", "exec:java"]],
    "python": [
        [sys.executable, "-m", "venv", "venv"],
        [PYTHON, "-m", "pip", "install", "--quiet", "--requirement", "requirements.txt"],
        [PYTHON, "libraries.py"],
    ],
    "go": [["go", "run", "."]],
    # The library requires a later Node than many machines have; npm has it as a package.
    "node": [
        ["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"],
        ["npx", "--yes", "node@22.23.3", "libraries.js"],
    ],
}
TOOLS = {"java": ("javac", "mvn"), "python": (), "go": ("go",), "node": ("npm", "npx")}


def check_libraries(docker: str, _compose: Sequence[str]) -> None:
    """Run the program of each library whose tools are installed; under `CI=true` a missing tool is an error."""
    # The image of Ryuk, which removes containers, would have to be pulled. The programs remove their containers.
    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
    try:
        for name in NAMES:
            run([docker, "tag", "barnabas-broker", name])
        for library, commands in COMMANDS.items():
            missing = [tool for tool in TOOLS[library] if shutil.which(tool) is None]
            if missing:
                say(f"testcontainers for {library} is not checked: {', '.join(missing)} not found")
                assert os.environ.get("CI") != "true", f"install {', '.join(missing)}"
            else:
                check_library(library, commands)
    finally:
        run([docker, "rmi", *NAMES], check=False)


def check_library(library: str, commands: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory(prefix="barnabas-libraries-") as scratch:
        folder = Path(scratch) / library
        shutil.copytree(PROJECTS / library, folder)
        for command in commands:
            said = run(command, folder=folder)
            for line in filter(str.strip, said.replace("\033[0m", "").splitlines()):  # Maven resets colors
                say(f"testcontainers for {library}: {line}")
