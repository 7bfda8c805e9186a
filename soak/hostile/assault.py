"""One attacking process: `python -m soak.hostile.assault --door DOOR --seed N --frames N`.

The last line of the output is a JSON report.
"""

from __future__ import annotations

import argparse
import json
import sys

from soak.hostile.attacker import Attacker, fuzzed_topics
from soak.hostile.frame_forge import FrameForge
from soak.hostile.guesses import forge_for_strangers
from soak.hostile.outsider import Outsider
from soak.hostile.wire import Door


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--door", type=Door.of, action="append", required=True, help="listener and login to use")
    parser.add_argument("--scout", type=Door.of, help="listener and login that may list all topics")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    if options.scout is None:
        attacker: Attacker = Outsider(options.door, forge_for_strangers(options.seed), options.seed)
    else:
        forge = FrameForge(options.seed, fuzzed_topics(options.scout))
        attacker = Attacker(options.door, forge, options.seed)
    attacker.run(options.frames, options.seconds)
    report = {
        "seed": options.seed,
        "frames": attacker.sent,
        "connections": attacker.connections,
        "outcomes": attacker.outcomes,
        "complaints": attacker.complaints,
    }
    print(json.dumps(report))
    return 1 if attacker.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
