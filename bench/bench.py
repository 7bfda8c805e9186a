"""A bench: a measurement with a name, its figures, and the goals for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.targets import Target
from bench.warming import WarmUpResult

Figures = dict[str, float]
ALL = ("barnabas", "kafka", "ceiling")
PACED = (*ALL, "sink")
"""The targets of benches in which the client limits the rate."""
BROKERS = ("barnabas", "kafka")
RIVAL = "kafka"
"""The target that has to be warm before a comparison with it is valid."""
LIMIT = "limit"
"""Used instead of a target in a goal that bounds the figure itself."""
STEPS = (1, 10, 100, 1000)
"""The counts of topics, partitions or connections in a bench that varies this number."""


@dataclass
class Run:
    """One round of one bench against one running target."""

    target: Target
    seconds: float
    number: int
    state: dict[str, float] = field(default_factory=dict)
    warm_up: WarmUpResult | None = None
    """Set by a bench that starts its servers itself and warms them up in each round."""

    def topic(self, name: str) -> str:
        return f"{name}-{self.number}"


@dataclass(frozen=True)
class Goal:
    """A bound of a figure's ratio Barnabas ÷ `against`: the minimum if higher is better, else the maximum.

    With `LIMIT` as `against`, it bounds the figure itself.
    """

    figure: str
    against: str
    ratio: float


@dataclass(frozen=True)
class Bench:
    """A named measurement. With several `brokers` each target is a cluster.

    `figures` maps each figure to "higher" or "lower", whichever is better. `properties` are set on both brokers,
    `kafka_properties` only on Apache Kafka. A bench that is not `started` starts new servers itself in each round.
    """

    name: str
    about: str
    figures: Mapping[str, str]
    measure: Callable[[Run], Figures]
    prepare: Callable[[Run], None] | None = None
    targets: tuple[str, ...] = ALL
    goals: tuple[Goal, ...] = ()
    partitions: int = 1
    brokers: int = 1
    kraft: bool = False
    """Whether a cluster has Apache Kafka's KRaft controllers instead of ZooKeeper."""
    properties: Mapping[str, str] = field(default_factory=dict)
    kafka_properties: Mapping[str, str] = field(default_factory=dict)
    secured: bool = False
    """Whether the brokers have TLS and SASL listeners in addition to the plain one."""
    started: bool = True
    rounds: int | None = None
    warmup: int | None = None
    warm_by: tuple[str, ...] = ()
    """The figures of `warming_figures`, instead of its default."""
    cold: str = ""
    """The reason why the rival is measured without a warm-up of its figures."""

    @property
    def warming_figures(self) -> dict[str, str]:
        """Return the figures of the rival that must stop improving before a round counts.

        The default is every figure with a goal against the rival, or the first figure without such a goal. The
        result is empty if the rival is not a target or the bench is `cold`.
        """
        if RIVAL not in self.targets or self.cold:
            return {}
        compared = [goal.figure for goal in self.goals if goal.against == RIVAL]
        names = self.warm_by or compared or [next(iter(self.figures))]
        return {name: self.figures[name] for name in names}


THROUGHPUT = {"mb_per_s": "higher", "cpu_s_per_gb": "lower"}
