"""An engine that runs containers: the one that answers, or a daemon that is started and ended here."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ENGINE_S, BUILD_S, STOP_S = 60, 1200, 120


class NoEngineError(Exception):
    """There is nothing here that can run containers."""


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def run(command: list[str], *, timeout_s: float = BUILD_S, check: bool = True, folder: Path | None = None) -> str:
    """Standard output of a command. Raises CalledProcessError after printing what it said."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=folder)
    if check and result.returncode != 0:
        print(result.stdout[-4000:], result.stderr[-4000:], file=sys.stderr)
        result.check_returncode()
    return result.stdout


def succeeds(command: list[str], *, timeout_s: float = BUILD_S) -> bool:
    """Whether a command that may well fail does not."""
    return subprocess.run(command, capture_output=True, timeout=timeout_s, check=False).returncode == 0


def wait_for(what: str, is_there: Callable[[], bool], timeout_s: float) -> None:
    """Ask until the answer is yes. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not is_there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {timeout_s:.0f} s")
        time.sleep(0.5)


@contextmanager
def engine(scratch: Path) -> Iterator[str]:
    """The `docker` command of an engine that runs. Raises NoEngineError."""
    for candidate in filter(None, (shutil.which("docker"), shutil.which("docker", path="/usr/bin"))):
        if succeeds([candidate, "info"]):
            yield candidate
            return
    daemon, docker = shutil.which("dockerd"), shutil.which("docker", path="/usr/bin") or shutil.which("docker")
    if daemon is None or docker is None:
        raise NoEngineError("no container engine answers, and there is no dockerd to start (Debian: docker.io)")
    if os.geteuid() != 0:
        raise NoEngineError("no container engine answers, and only root can start dockerd")
    socket = scratch / "docker.sock"
    folders = [f"--data-root={scratch}/root", f"--exec-root={scratch}/exec", f"--pidfile={scratch}/docker.pid"]
    with (scratch / "dockerd.log").open("wb") as log:
        process = subprocess.Popen([daemon, *folders, f"--host=unix://{socket}"], stdout=log, stderr=log)
    os.environ["DOCKER_HOST"] = f"unix://{socket}"
    try:
        say("starting dockerd")
        try:
            wait_for(
                "answer of dockerd",
                lambda: succeeds([docker, "info"]) or process.poll() is not None,
                ENGINE_S,
            )
        except TimeoutError as error:
            raise NoEngineError(str(error)) from error
        if process.poll() is not None:
            raise NoEngineError("dockerd cannot run here:\n" + (scratch / "dockerd.log").read_text()[-2000:])
        yield docker
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        process.kill()
        process.wait()
        unmount(scratch)


def unmount(folder: Path) -> None:
    """What the daemon leaves mounted, as it does its network namespace, would keep the folder from being removed."""
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((p for p in places if Path(p).is_relative_to(folder)), reverse=True):
        run(["umount", "--lazy", place], check=False)


def compose_command(docker: str) -> list[str]:
    """How this machine calls compose. Raises NoEngineError."""
    if succeeds([docker, "compose", "version"]):
        return [docker, "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise NoEngineError("the engine has no compose (Debian: docker-compose)")
