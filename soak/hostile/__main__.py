"""Send hostile bytes to a broker process: `python -m soak.hostile --frames 1000000 --minutes 20 --seed 7`."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from soak.hostile.attacked_broker import AttackerKind
from soak.hostile.storm import storm


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.hostile", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="hostile frames to send (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=20.0, help="time limit in minutes (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the frames (default: a random seed)")
    parser.add_argument(
        "--kind",
        type=AttackerKind,
        choices=list(AttackerKind),
        help="kind of attackers (default: each kind in turn, with --frames each)",
    )
    parser.add_argument("--attackers", type=int, default=2, help="attacking processes (default: %(default)s)")
    options = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    return max(play(kind, seed, options) for kind in ([options.kind] if options.kind else AttackerKind))


def play(kind: AttackerKind, seed: int, options: argparse.Namespace) -> int:
    """Play one storm, print its report, and return the exit status."""
    replay = f"--frames {options.frames} --seed {seed} --attackers {options.attackers} --kind {kind.value}"
    print(f"replay with: python -m soak.hostile {replay}", flush=True)
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        seconds = options.minutes * 60
        report = storm(
            Path(folder), frames=options.frames, seconds=seconds, seed=seed, attackers=options.attackers, kind=kind
        )
    print(report, flush=True)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
