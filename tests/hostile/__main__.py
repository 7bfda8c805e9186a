"""`python -m tests.hostile --frames 1000000 --minutes 20 --seed 7`: hostile bytes against a live broker."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tests.hostile.storm import storm


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="hostile frames in all (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=20.0, help="stop after this time (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="replays a run's frames (default: a random one)")
    parser.add_argument("--attackers", type=int, default=2, help="attacking processes (default: %(default)s)")
    options = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    replay = f"python -m tests.hostile --frames {options.frames} --seed {seed} --attackers {options.attackers}"
    print(f"replay with: {replay}", flush=True)
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        report = storm(
            Path(folder), frames=options.frames, seconds=options.minutes * 60, seed=seed, attackers=options.attackers
        )
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
