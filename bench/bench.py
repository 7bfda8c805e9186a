"""A bench: a measurement with a name, its figures, and the goals for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.targets import Target
from bench.warming import Warmth

Figures = dict[str, float]
ALL = ("barnabas", "kafka", "ceiling")
PACED = (*ALL, "sink")
"""Where the client sets the pace."""
BROKERS = ("barnabas", "kafka")
RIVAL = "kafka"
"""The target that has to be warm before a comparison with it is valid."""
LIMIT = "limit"
"""In place of a target to compare with: the goal is for the figure itself."""
STEPS = (1, 10, 100, 1000)
"""How a bench of growth grows."""


@dataclass
class Run:
    """One round of one bench against one running target."""

    target: Target
    seconds: float
    number: int
    state: dict[str, float] = field(default_factory=dict)
    warmth: Warmth | None = None
    """Set by a bench that starts its servers itself and warms them up in each round."""

    def topic(self, name: str) -> str:
        return f"{name}-{self.number}"


@dataclass(frozen=True)
class Goal:
    """The ratio Barnabas ÷ `against` of a figure has to be at least this where higher is better, else at most this.

    With `LIMIT` as `against` it is not a ratio but the figure that is bounded.
    """

    figure: str
    against: str
    ratio: float


@dataclass(frozen=True)
class Bench:
    """A named measurement; with several `brokers` each target is a cluster.

    `figures` maps each figure to "higher" or "lower", whichever is better. `properties` go to both brokers,
    `kafka_properties` to Apache Kafka alone. A bench that is not `started` starts its servers itself, fresh each round.
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
    """Whether a cluster has controllers of Apache Kafka instead of a ZooKeeper."""
    properties: Mapping[str, str] = field(default_factory=dict)
    kafka_properties: Mapping[str, str] = field(default_factory=dict)
    doors: bool = False
    """Whether the brokers have listeners with TLS and passwords beside the plain one."""
    started: bool = True
    rounds: int | None = None
    warmup: int | None = None
    warm_by: tuple[str, ...] = ()
    """In place of the figures that `warming_figures` takes by itself."""
    cold: str = ""
    """Why a rival is measured that is not warm."""

    @property
    def warming_figures(self) -> dict[str, str]:
        """The figures of the rival that must have stopped improving before a round counts; else the round is `cold`.

        That is every figure with a goal against it, or the first one where there is no such goal.
        """
        if RIVAL not in self.targets or self.cold:
            return {}
        compared = [goal.figure for goal in self.goals if goal.against == RIVAL]
        names = self.warm_by or compared or [next(iter(self.figures))]
        return {name: self.figures[name] for name in names}


THROUGHPUT = {"mb_per_s": "higher", "cpu_s_per_gb": "lower"}
