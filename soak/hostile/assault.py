"""One attacking process: `python -m soak.hostile.assault --endpoint ENDPOINT --seed N --frames N`.

The last line of the output is a JSON report.
"""

from __future__ import annotations

import argparse
import json
import sys

from soak.hostile.attacker import Attacker, fuzzed_topics
from soak.hostile.frame_forge import FrameForge
from soak.hostile.guesses import unauthenticated_forge
from soak.hostile.unauthenticated_attacker import UnauthenticatedAttacker
from soak.hostile.wire import Endpoint


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--endpoint", type=Endpoint.of, action="append", required=True, help="listener and login to use"
    )
    parser.add_argument("--admin", type=Endpoint.of, help="listener and login that may list all topics")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    if options.admin is None:
        attacker: Attacker = UnauthenticatedAttacker(
            options.endpoint, unauthenticated_forge(options.seed), options.seed
        )
    else:
        forge = FrameForge(options.seed, fuzzed_topics(options.admin))
        attacker = Attacker(options.endpoint, forge, options.seed)
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
