"""Runs the compose files for real and checks what they promise: `python docker/check [--no-build] [PROFILE …]`.

Profiles are broker (broker.yml), drop-in (the files of services/, which name an image of Kafka in other projects),
libraries (testcontainers for Java, Python, Go and Node, as far as their tools are installed), and of docker-compose.yml
secured, cluster, table, metrics and demo; all by default.
Needs the project's environment (`make containers` makes it) and a container engine with compose: one that runs, or
Debian's `docker.io` and `docker-compose`, whose daemon it then starts and ends itself (as root); the bridge and the
firewall's rules that a daemon makes stay. Images that cannot be pulled are made with `debootstrap`. Grafana alone is
not started. Without an engine it says so and ends with status 2; with status 1 if something does not do what it
should.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import KafkaException
from demo import check_demo
from drop_in import check_drop_in
from engine import NoEngineError, compose_command, engine, say
from images import base_images, build, foreign_images
from libraries import check_libraries
from profiles import check_broker, check_cluster, check_metrics, check_secured, check_table

PROFILES = {
    "broker": check_broker,
    "drop-in": check_drop_in,
    "libraries": check_libraries,
    "secured": check_secured,
    "cluster": check_cluster,
    "table": check_table,
    "metrics": check_metrics,
    "demo": check_demo,
}


def check(profiles: list[str], *, build_images: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="barnabas-compose-") as folder:
        scratch = Path(folder)
        with engine(scratch) as docker:
            compose = compose_command(docker)
            if build_images:
                build(docker, base_images(docker, scratch))
            foreign_images(docker, scratch)
            for profile in profiles:
                say(profile)
                PROFILES[profile](docker, compose)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python docker/check", description="Run the compose files and check them.")
    parser.add_argument("profiles", nargs="*", metavar="PROFILE", help=", ".join(PROFILES))
    parser.add_argument("--no-build", action="store_true", help="take the images that are there")
    options = parser.parse_args()
    if unknown := set(options.profiles) - set(PROFILES):
        parser.error(f"no profile of this name: {', '.join(sorted(unknown))}")
    try:
        check(options.profiles or list(PROFILES), build_images=not options.no_build)
    except NoEngineError as error:
        say(f"nothing can run here: {error}")
        return 2
    except (AssertionError, TimeoutError, OSError, subprocess.SubprocessError, KafkaException) as error:
        say(f"failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
