"""`python -m soak.scrapes --minutes 60`: Prometheus reads a broker that clients use, and misses no scrape.

Prometheus is the one that is installed here (Debian has a package of that name); what it has kept is looked at in the
end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import urllib.parse
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

from soak.cluster.load import Load
from tests.barnabas_server import BarnabasServer
from tests.server_process import ServerProcess, free_port, wait_until

SCRAPE_S = 5
TOPIC, PARTITIONS, PER_SECOND = "load", 3, 200
COUNTER = "kafka_server_brokertopicmetrics_messagesin_total"


class Prometheus:
    """One that scrapes a single address, and what it has seen there."""

    def __init__(self, folder: Path, scraped: str) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        settings = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s"},
            "scrape_configs": [{"job_name": "barnabas", "static_configs": [{"targets": [scraped]}]}],
        }
        file = folder / "prometheus.json"
        file.write_text(json.dumps(settings))  # which is YAML, too
        flags = {
            "config.file": file,
            "storage.tsdb.path": folder / "prometheus",
            "web.listen-address": self._address,
        }
        command = ["prometheus", *(f"--{flag}={value}" for flag, value in flags.items())]
        self._process = ServerProcess(command, folder / "prometheus.log")
        self._process.wait_ready(lambda: bool(self.samples("up", 1)), timeout_s=60, what="Prometheus has scraped")

    def samples(self, series: str, minutes: float) -> list[tuple[float, float]]:
        """Time and value of each scrape of the last minutes, of the one series of that description."""
        question = urllib.parse.urlencode({"query": f"{series}[{int(minutes * 60)}s]"})
        try:
            with urllib.request.urlopen(f"http://{self._address}/api/v1/query?{question}", timeout=60) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except OSError:
            return []
        return [(float(when), float(value)) for one in found for when, value in one["values"]]

    def end(self) -> None:
        self._process.end()


def watch(minutes: float) -> int:
    """Have clients at work for so long; 1 if a scrape failed or came late, or a counter went back."""
    with tempfile.TemporaryDirectory() as name:
        folder, door = Path(name), f"127.0.0.1:{free_port()}"
        settings = {"metrics.listeners": door, "num.partitions": str(PARTITIONS)}
        with BarnabasServer(folder / "broker", properties=settings) as server:
            prometheus = Prometheus(folder, door)
            try:
                with Load(server.bootstrap, TOPIC, PARTITIONS, per_second=PER_SECOND) as load:
                    load.grows()
                    wait_until(
                        lambda: len(prometheus.samples("up", minutes + 5)) * SCRAPE_S >= minutes * 60,
                        timeout_s=minutes * 60 * 1.1 + 60,
                        what="Prometheus has scraped for that long",
                        interval_s=SCRAPE_S,
                    )
                    load.finish()
                ups = prometheus.samples("up", minutes + 5)
                counts = [count for _, count in prometheus.samples(f'{COUNTER}{{topic="{TOPIC}"}}', minutes + 5)]
            finally:
                prometheus.end()
    failed = sum(value != 1 for _, value in ups)
    longest = max(after - before for (before, _), (after, _) in pairwise(ups))
    went_back = sum(after < before for before, after in pairwise(counts))
    print(
        f"{len(ups)} scrapes in {(ups[-1][0] - ups[0][0]) / 60:.1f} minutes, {failed} failed, {longest:.3f} s at most "
        "between two\n"
        f"{len(counts)} times {COUNTER}, at last {counts[-1]:.0f}, {went_back} times less than before"
    )
    return int(bool(failed or went_back or longest > 1.5 * SCRAPE_S or len(counts) < len(ups) - 2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    minutes = parser.parse_args().minutes
    if shutil.which("prometheus") is None:
        sys.exit("prometheus is not installed")
    sys.exit(watch(minutes))
