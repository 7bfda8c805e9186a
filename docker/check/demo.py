"""The demo of the compose file: flights are written, read as a group, and kept by Spark, and all of it ends cleanly."""

import os
from collections.abc import Sequence

from engine import STOP_S, run, say, wait_for
from project import COMPOSE_FILE, UP_S, Follower, count, here, running

FLIGHTS = 336_776
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


def check_demo(docker: str, compose: Sequence[str]) -> None:
    os.environ["FLIGHTS_PER_SECOND"] = "20000"
    client = here("BARNABAS_PORT")
    with running(docker, compose, COMPOSE_FILE) as project:
        project.compose("up", "--detach", "--no-build")
        follower = Follower(project)

        def everybody_is_there() -> bool:
            in_parquet = sum(int(found.replace(",", "")) for found in follower.said("spark", PARQUET_PROGRESS))
            has_said = all(follower.said(name, pattern) for name, pattern in EXPECTED.items())
            return has_said and in_parquet >= FLIGHTS

        try:
            wait_for("sign of all services", everybody_is_there, UP_S)
            project.wait_healthy("broker")
            counted = count(client, "flights")
            assert counted == FLIGHTS, f"the host reads {counted} flights"
            say(f"a client on the host reads {counted:,} flights")
        finally:
            run([*project.command, "stop"], timeout_s=STOP_S)
            follower.end()
        for name, pattern in AT_THE_END.items():
            assert follower.said(name, pattern), f"{name} did not say {pattern!r}"
        project.stop(*EXPECTED)
        say("every service said what it should and ended with status 0")
