"""`meta.properties` is read as Java reads it."""

import pytest

from barnabas.storage.errors import CorruptCheckpointError
from barnabas.storage.meta_properties import MetaProperties


def test_escapes_and_blanks_mean_what_they_mean_to_java() -> None:
    data = b"# by hand\r\nversion : 1\nnode.id=\\u0037 \ncluster.id = a\\=\\\n  b\n"
    assert MetaProperties.parse(data, "file") == MetaProperties(1, 7, "a=b")


@pytest.mark.parametrize("data", [b"version=2\n", b"version=1\nnode.id=x\n", b"version=1\nnode.id=\\u00\n", b""])
def test_what_java_or_kafka_refuses_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match=r"^file: "):
        MetaProperties.parse(data, "file")
