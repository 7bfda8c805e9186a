"""What clients have pushed of themselves (KIP-714), as Prometheus reads it.

`org.apache.kafka.producer.connection.creation.rate` is `kafka_client_producer_connection_creation_rate` here. No name
of the broker's own begins like that, so that no client can say something in its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..telemetry.received_metrics import ClientMetrics
from .tables import family_text, label_text

PREFIX = "kafka_client_"
ABOUT = "barnabas_client_info"


def client_families(clients: Sequence[ClientMetrics], *, is_openmetrics: bool) -> Iterator[str]:
    """A piece for each family. Where clients differ in what a name stands for both are told: nobody hides another's."""
    families: dict[tuple[str, bool], list[tuple[str, float]]] = {}
    about: list[tuple[str, float]] = []
    for client in clients:
        about.append((label_text(iter({**dict(client.about), **dict(client.labels)}.items())), 1))
        for name, is_counter, labels, value in client.series:
            values = families.setdefault((name, is_counter), [])
            values.append((label_text(iter((*client.labels, *labels))), value))
    if about:
        yield family_text(ABOUT, "gauge", "a client that pushes metrics, and what it says of itself", iter(about),
                          is_openmetrics)  # fmt: skip
    for (name, is_counter), values in families.items():
        family, kind = PREFIX + name, "counter" if is_counter else "gauge"
        if is_counter and is_openmetrics and (name, False) in families:
            family, kind = f"{family}_total", "unknown"  # there a counter and a gauge may not have one name
        yield family_text(family, kind, "pushed by clients (KIP-714)", iter(values), is_openmetrics)
