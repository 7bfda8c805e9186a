"""The images that the compose files name: built, pulled, or made here of Debian's packages."""

import os
import re
import shutil
from pathlib import Path

from engine import NoEngineError, run, say, succeeds

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("broker", "demo", "spark", "table")
BASES = dict(re.findall(r"(?m)^ARG (\w+)=(.+)$", (ROOT / "docker/Dockerfile").read_text()))
"""The base images that the recipe pins, by build argument."""
PINNED = dict(re.findall(r"\$\{(\w+_IMAGE):-([^}]+)\}", (ROOT / "docker/docker-compose.yml").read_text()))
"""The images of others that the compose file pins, by the variable that names another."""
PREPARED = {"BUILD_IMAGE": "barnabas-base-build", "IMAGE": "barnabas-base"}
SUITE = "trixie"  # its Python is the one of the images above, for which docker/requirements are
BROKER_MB = 80  # compressed, with its base image
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
INSTALL = "RUN apt-get update && apt-get install --yes --no-install-recommends"
BUILD_BASE = f"{INSTALL} gcc libc6-dev python3-dev python3-venv"
STAND_INS = {
    "ZOOKEEPER_IMAGE": f"""
{INSTALL} zookeeper netcat-openbsd && install --directory --owner zookeeper /data /datalog
RUN printf 'dataDir=/data\\ndataLogDir=/datalog\\nclientPort=2181\\ntickTime=2000\\n' > /etc/zookeeper.cfg
USER zookeeper
VOLUME /data /datalog
CMD . /etc/zookeeper/conf/environment && exec java -Dzookeeper.4lw.commands.whitelist=$ZOO_4LW_COMMANDS_WHITELIST \
-Dzookeeper.admin.enableServer=false -cp "$CLASSPATH" "$ZOOMAIN" /etc/zookeeper.cfg
""",
    "PROMETHEUS_IMAGE": f"""
{INSTALL} prometheus && install --directory --owner nobody /prometheus
USER nobody
ENTRYPOINT ["prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
""",
}


def is_here(docker: str, image: str) -> bool:
    return succeeds([docker, "image", "inspect", image]) or succeeds([docker, "pull", image])


def base_images(docker: str, scratch: Path) -> dict[str, str]:
    """The images to build upon: the usual ones, or such as are made here. Raises NoEngineError."""
    if all(is_here(docker, image) for image in BASES.values()):
        return BASES
    prepare_base(docker, scratch)
    return PREPARED


def prepare_base(docker: str, scratch: Path) -> None:
    """A small Debian with Python, and one with a compiler upon it, both of which trust what this machine trusts."""
    if succeeds([docker, "image", "inspect", PREPARED["BUILD_IMAGE"]]):
        return
    if shutil.which("debootstrap") is None:
        raise NoEngineError("base images cannot be pulled, and there is no debootstrap to make one")
    say("images cannot be pulled: making them with debootstrap")
    tree = scratch / "debian"
    run(["debootstrap", "--variant=minbase", "--include=python3,ca-certificates,netbase,tzdata", SUITE, str(tree)])
    # The official images do not contain these files either. Packages expect the folders.
    for folder in ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists"):
        run(["find", str(tree / folder), "-type", "f", "-delete"])
    run(["find", f"{tree}/usr/lib", "-name", "*.pyc", "-delete"])
    shutil.copy(CERTIFICATES, tree / CERTIFICATES.relative_to("/"))
    (tree / "etc/pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\ndefault-timeout = 180\n")
    run(["sh", "-c", f"tar -C {tree} -c . | {docker} import - {PREPARED['IMAGE']}"])
    shutil.rmtree(tree)
    build_upon_base(docker, scratch, PREPARED["BUILD_IMAGE"], BUILD_BASE)


def build_upon_base(docker: str, scratch: Path, image: str, recipe: str) -> None:
    folder = scratch / "recipe"
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(f"FROM {PREPARED['IMAGE']}\n{recipe}\n")
    run([docker, "build", "--network=host", "--tag", image, str(folder)])


def foreign_images(docker: str, scratch: Path) -> None:
    """What services of others are made of. Raises NoEngineError."""
    for variable, recipe in STAND_INS.items():
        if not is_here(docker, PINNED[variable]):
            prepare_base(docker, scratch)
            say(f"{PINNED[variable]} cannot be pulled: Debian's package stands in")
            stand_in = f"barnabas-{variable.removesuffix('_IMAGE').lower()}"
            build_upon_base(docker, scratch, stand_in, recipe)
            os.environ[variable] = stand_in


def build(docker: str, bases: dict[str, str]) -> None:
    """The images of the project; none of them runs as root."""
    arguments = [f"--build-arg={name}={image}" for name, image in bases.items()]
    for target in TARGETS:
        say(f"building the image of {target}")
        image = f"barnabas-{target}"
        what = [f"--target={target}", f"--tag={image}", f"--file={ROOT}/docker/Dockerfile", str(ROOT)]
        run([docker, "build", "--network=host", *arguments, *what])
        size = int(run([docker, "image", "inspect", "--format", "{{.Size}}", image])) / 1e6
        compressed = int(run(["sh", "-c", f"{docker} save {image} | gzip | wc -c"])) / 1e6
        user = run([docker, "image", "inspect", "--format", "{{.Config.User}}", image]).strip()
        say(f"{image}: {size:,.0f} MB, {compressed:,.0f} MB compressed, runs as {user}")
        assert user == "barnabas", f"{image} runs as {user or 'root'}"
        assert target != "broker" or compressed <= BROKER_MB, (
            f"{image} has {compressed:.0f} MB, more than {BROKER_MB} MB"
        )
