"""Runs the compose demo for real and checks what it says: `python3 docker/check.py [--no-build]`.

Needs a container engine with compose: one that runs, or Debian's `docker.io` and `docker-compose`, whose daemon it then
starts and ends itself (as root). Where base images cannot be pulled it makes one with `debootstrap`. Without an engine
it says so and ends with status 2; with status 1 if the demo does not do what it should.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parent.parent
COMPOSE_FILE = ROOT / "docker" / "docker-compose.yml"
IMAGES = {"BUILD_IMAGE": "python:3.13-bookworm", "IMAGE": "python:3.13-slim-bookworm"}
PREPARED = {"BUILD_IMAGE": "barnabas-base-build", "IMAGE": "barnabas-base"}
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
FLIGHTS = 336_776
ENGINE_S, BUILD_S, RUN_S, STOP_S = 60, 1200, 600, 120
EXPECTED = {
    "broker": r"ready broker\.id",
    "producer": rf"{FLIGHTS:,} flights acknowledged, 0 failed",
    "consumer": rf"{FLIGHTS:,} flights read",
    "spark": r"states go to the topic aircraft",
}
PARQUET_PROGRESS = r"flights to Parquet: batch \d+, ([\d,]+) records"
AT_THE_END = {
    "broker": r"shutting down",
    "consumer": rf"{FLIGHTS:,} flights read and committed",
    "spark": rf"stopped with {FLIGHTS:,} flights in Parquet",
}


class NoEngineError(Exception):
    """There is nothing here that can run containers."""


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def run(command: list[str], *, timeout_s: float = BUILD_S, check: bool = True) -> str:
    """Standard output of a command. Raises CalledProcessError after printing what it said."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if check and result.returncode != 0:
        print(result.stdout[-4000:], result.stderr[-4000:], file=sys.stderr)
        result.check_returncode()
    return result.stdout


def wait_for(what: str, is_there: "Iterator[bool]", timeout_s: float) -> None:
    """Go through `is_there` until it says yes. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    for there in is_there:
        if there:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {timeout_s:.0f} s")
        time.sleep(0.5)


def engine_answers(docker: str) -> bool:
    return subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


@contextmanager
def engine(scratch: Path) -> Iterator[str]:
    """The `docker` command of an engine that runs. Raises NoEngineError."""
    for candidate in filter(None, (shutil.which("docker"), shutil.which("docker", path="/usr/bin"))):
        if engine_answers(candidate):
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
                (engine_answers(docker) or process.poll() is not None for _ in iter(int, 1)),
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
        unmount(scratch)


def unmount(folder: Path) -> None:
    """What the daemon leaves mounted, as it does its network namespace, would keep the folder from being removed."""
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((p for p in places if Path(p).is_relative_to(folder)), reverse=True):
        run(["umount", "--lazy", place], check=False)


def compose_command(docker: str) -> list[str]:
    """How this machine calls compose. Raises NoEngineError."""
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0:
        command = [docker, "compose"]
    elif shutil.which("docker-compose"):
        command = ["docker-compose"]
    else:
        raise NoEngineError("the engine has no compose (Debian: docker-compose)")
    return [*command, "--file", str(COMPOSE_FILE), "--project-name", "barnabas-check"]


def base_images(docker: str, scratch: Path) -> dict[str, str]:
    """The images to build upon: the usual ones, or such as are made here where those cannot be pulled."""
    if all(
        subprocess.run([docker, "pull", image], capture_output=True, check=False).returncode == 0
        for image in IMAGES.values()
    ):
        return IMAGES
    if not run([docker, "images", "--quiet", PREPARED["BUILD_IMAGE"]]).strip():
        if shutil.which("debootstrap") is None:
            raise NoEngineError("base images cannot be pulled, and there is no debootstrap to make one")
        say("base images cannot be pulled: making one with debootstrap")
        prepare_base(docker, scratch)
    return PREPARED


def prepare_base(docker: str, scratch: Path) -> None:
    """Import a small Debian with Python, and build one with a compiler upon it; both trust what this machine trusts."""
    tree = scratch / "debian"
    run(["debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", "bookworm", str(tree)])
    shutil.copy(CERTIFICATES, tree / CERTIFICATES.relative_to("/"))
    (tree / "etc/pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\ndefault-timeout = 180\n")
    run(["sh", "-c", f"tar -C {tree} -c . | {docker} import - {PREPARED['IMAGE']}"])
    shutil.rmtree(tree)
    recipe = scratch / "build"
    recipe.mkdir()
    install = "apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev"
    (recipe / "Dockerfile").write_text(f"FROM {PREPARED['IMAGE']}\nRUN {install}\n")
    run([docker, "build", "--network=host", "--tag", PREPARED["BUILD_IMAGE"], str(recipe)])


def build(docker: str, bases: dict[str, str]) -> None:
    arguments = [f"--build-arg={name}={image}" for name, image in bases.items()]
    for target in ("broker", "demo", "spark"):
        say(f"building the image of {target}")
        image = f"barnabas-{target}"
        file = str(ROOT / "docker" / "Dockerfile")
        run(
            [
                docker,
                "build",
                "--network=host",
                *arguments,
                f"--target={target}",
                f"--tag={image}",
                f"--file={file}",
                str(ROOT),
            ]
        )
        size = int(run([docker, "image", "inspect", "--format", "{{.Size}}", image])) / 1e6
        user = run([docker, "image", "inspect", "--format", "{{.Config.User}}", image]).strip()
        say(f"{image}: {size:,.0f} MB, runs as {user}")
        assert user == "barnabas", f"{image} runs as {user or 'root'}"


class Follower:
    """Shows what the services say, as they say it, and keeps it."""

    def __init__(self, compose: list[str]) -> None:
        command = [*compose, "logs", "--no-color", "--follow"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines: list[str] = []
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None, "opened as a pipe"
        for line in self._process.stdout:
            print(line, end="", flush=True)
            self._lines.append(line)

    def said(self, service: str, pattern: str) -> list[str]:
        """What the pattern finds in the lines of a service."""
        found = []
        for line in list(self._lines):
            name, _, text = line.partition("|")
            if name.startswith(service):
                found += re.findall(pattern, text)
        return found

    def everybody_is_there(self) -> Iterator[bool]:
        while True:
            in_parquet = sum(int(count.replace(",", "")) for count in self.said("spark", PARQUET_PROGRESS))
            has_said = all(self.said(name, pattern) for name, pattern in EXPECTED.items())
            yield has_said and in_parquet >= FLIGHTS

    def end(self) -> None:
        """Wait for the last lines of services that have ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self._process.kill()
        self._reader.join()


def read_from_host(port: str) -> int:
    """How many records a client on the host counts in the topic, through the advertised address of the host."""
    python = ROOT / ".venv" / "bin" / "python"
    program = (
        "import sys; from confluent_kafka import Consumer, TopicPartition as T\n"
        "c = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'host'})\n"
        "print(sum(c.get_watermark_offsets(T('flights', p), timeout=20)[1] for p in range(4)))"
    )
    return int(run([str(python), "-c", program, f"localhost:{port}"], timeout_s=60))


def check() -> None:
    with tempfile.TemporaryDirectory(prefix="barnabas-compose-") as folder, ExitStack() as stack:
        docker = stack.enter_context(engine(Path(folder)))
        compose = compose_command(docker)
        if "--no-build" not in sys.argv:
            build(docker, base_images(docker, Path(folder)))
        port = os.environ.setdefault("BARNABAS_PORT", "19092")
        os.environ.setdefault("FLIGHTS_PER_SECOND", "20000")
        try:
            say("docker compose up")
            run([*compose, "up", "--detach", "--no-build"], timeout_s=RUN_S)
            follower = Follower(compose)
            wait_for("sign of all services", follower.everybody_is_there(), RUN_S)
            health = run(
                [docker, "inspect", "--format", "{{.State.Health.Status}}", *container(compose, "broker")]
            ).strip()
            assert health == "healthy", f"the broker is {health}"
            counted = read_from_host(port)
            assert counted == FLIGHTS, f"the host counts {counted} flights"
            say(f"a client on the host counts {counted:,} flights")
            say("docker compose stop")
            run([*compose, "stop"], timeout_s=STOP_S)
            follower.end()
            for name, pattern in AT_THE_END.items():
                assert follower.said(name, pattern), f"{name} did not say {pattern!r}"
            for name in EXPECTED:
                status = run([docker, "inspect", "--format", "{{.State.ExitCode}}", *container(compose, name)]).strip()
                assert status == "0", f"{name} ended with status {status}"
            say("every service said what it should and ended with status 0")
        finally:
            run([*compose, "down", "--volumes"], timeout_s=STOP_S, check=False)


def container(compose: list[str], service: str) -> list[str]:
    return (
        run([*compose, "ps", "--all", "--quiet", service], check=False).split()
        or run([*compose, "ps", "--quiet", service]).split()
    )


def main() -> int:
    try:
        check()
    except NoEngineError as error:
        say(f"the demo cannot run here: {error}")
        return 2
    except (AssertionError, TimeoutError, subprocess.SubprocessError) as error:
        say(f"failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
