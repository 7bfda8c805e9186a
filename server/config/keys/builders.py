"""Short constructors of keys, for the tables: `integer("num.partitions", 1, MEDIUM, Range(1), doc="…")`."""

from __future__ import annotations

from .definition import ConfigKey, ConfigType, ConfigValue, Importance, UpdateMode
from .validators import Validator

HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
READ_ONLY = UpdateMode.READ_ONLY
PER_BROKER = UpdateMode.PER_BROKER
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class _Builder:
    """A constructor of keys of one type."""

    __slots__ = ("_type",)

    def __init__(self, kind: ConfigType) -> None:
        self._type = kind

    def __call__(
        self,
        name: str,
        default: ConfigValue,
        importance: Importance,
        validator: Validator | None = None,
        *,
        mode: UpdateMode = READ_ONLY,
        doc: str | None = None,
        internal: bool = False,
    ) -> ConfigKey:
        return ConfigKey(
            name=name,
            type=self._type,
            default=default,
            validator=validator,
            importance=importance,
            update_mode=mode,
            doc=doc,
            internal=internal,
        )


boolean = _Builder(ConfigType.BOOLEAN)
string = _Builder(ConfigType.STRING)
integer = _Builder(ConfigType.INT)
short = _Builder(ConfigType.SHORT)
long = _Builder(ConfigType.LONG)
double = _Builder(ConfigType.DOUBLE)
list_of = _Builder(ConfigType.LIST)
class_name = _Builder(ConfigType.CLASS)
password = _Builder(ConfigType.PASSWORD)
