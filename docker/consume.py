"""Read the flights as a group with committed offsets, and count departures by airport."""

import os
import signal
import time
from collections import Counter

from confluent_kafka import Consumer

TOPIC = "flights"
ORIGIN = 12
SAY_EVERY_S = 5.0


def main() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    group = {"group.id": "departures", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": os.environ["BOOTSTRAP"], **group})
    consumer.subscribe([TOPIC], on_assign=lambda _, parts: print(f"reads {len(parts)} partitions", flush=True))
    departures: Counter[str] = Counter()
    said = time.monotonic()
    told = 0
    while not stopping:
        for message in consumer.consume(5000, timeout=0.5):
            if message.error() is None:
                departures[message.value().split(b",")[ORIGIN].decode()] += 1
        if departures.total() > told and time.monotonic() - said > SAY_EVERY_S:
            said, told = time.monotonic(), departures.total()
            print(
                f"{told:,} flights read: " + ", ".join(f"{n:,} from {o}" for o, n in departures.most_common()),
                flush=True,
            )
    consumer.close()
    print(f"{departures.total():,} flights read and committed", flush=True)


if __name__ == "__main__":
    main()
