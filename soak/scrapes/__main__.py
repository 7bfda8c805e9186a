"""Scrape a broker under load with Prometheus, and check that no scrape fails: `python -m soak.scrapes --minutes 60`.

Requires an installed `prometheus` (Debian has a package of that name). The check reads the samples that Prometheus
stored.
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
    """A Prometheus process that scrapes a single address."""

    def __init__(self, folder: Path, scraped: str) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        settings = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s"},
            "scrape_configs": [{"job_name": "barnabas", "static_configs": [{"targets": [scraped]}]}],
        }
        file = folder / "prometheus.json"
        file.write_text(json.dumps(settings))  # JSON is also valid YAML
        flags = {
            "config.file": file,
            "storage.tsdb.path": folder / "prometheus",
            "web.listen-address": self._address,
        }
        command = ["prometheus", *(f"--{flag}={value}" for flag, value in flags.items())]
        self._process = ServerProcess(command, folder / "prometheus.log")
        self._process.wait_ready(lambda: bool(self.samples("up", 1)), timeout_s=60, what="Prometheus has scraped")

    def samples(self, series: str, minutes: float) -> list[tuple[float, float]]:
        """Return the time and value of each sample of the last `minutes` of the only series that matches the query."""
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
    """Run clients for this time; return 1 if a scrape failed or was late or a counter decreased, else 0."""
    with tempfile.TemporaryDirectory() as name:
        folder, metrics_listener = Path(name), f"127.0.0.1:{free_port()}"
        settings = {"metrics.listeners": metrics_listener, "num.partitions": str(PARTITIONS)}
        with BarnabasServer(folder / "broker", properties=settings) as server:
            prometheus = Prometheus(folder, metrics_listener)
            try:
                with Load(server.bootstrap, TOPIC, PARTITIONS, per_second=PER_SECOND) as load:
                    load.grows()
                    wait_until(
                        lambda: len(prometheus.samples("up", minutes + 5)) * SCRAPE_S >= minutes * 60,
                        timeout_s=minutes * 60 * 1.1 + 60,
                        what="Prometheus has samples of the whole time",
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
        f"{len(ups)} scrapes in {(ups[-1][0] - ups[0][0]) / 60:.1f} minutes, {failed} failed, longest interval "
        f"{longest:.3f} s\n"
        f"{len(counts)} samples of {COUNTER}, last value {counts[-1]:.0f}, {went_back} decreases"
    )
    return int(bool(failed or went_back or longest > 1.5 * SCRAPE_S or len(counts) < len(ups) - 2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="minutes of the load (default: 60)")
    minutes = parser.parse_args().minutes
    if shutil.which("prometheus") is None:
        sys.exit("prometheus is not installed")
    sys.exit(watch(minutes))
