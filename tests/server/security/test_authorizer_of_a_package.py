"""An authorizer that another package brings, as docs/security.md shows it."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from tests.server.data_plane import PAGE_CACHE, DataPlane, play

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest

PATIENCE_MS = 60_000
PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text()


def install(site: Path) -> None:
    """The page's class under the page's entry point."""
    (code,) = [
        one for one in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) if "OfficeHours" in one
    ]
    found = re.search(r'entry-points\."(.+)"\]\n"(.+)" = "(.+)"', PAGE)
    assert found
    group, name, place = found.groups()
    module = site.joinpath(*place.partition(":")[0].split(".")).with_suffix(".py")
    module.parent.mkdir()
    module.write_text(code)
    about = site / "example-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        textwrap.dedent(f"""\
        [{group}]
        {name} = {place}
    """)
    )


@pytest.mark.parametrize("boss", ["ANONYMOUS", "anna"])
def test_the_pages_example_decides(boss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    refusal = 0 if boss == "ANONYMOUS" else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        topics = [CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
        answer = await client.send(CreateTopicsRequest(topics=topics, timeout_ms=PATIENCE_MS), 7)
        assert [one.error_code for one in answer.topics] == [refusal]
        seen = await client.send(MetadataRequest(topics=None), 12)
        assert {topic.name for topic in seen.topics} == ({"t"} if refusal else {"t", "new"})

    play(talk, settings=PAGE_CACHE | {"authorizer.class.name": "org.example.OfficeHours", "office.boss": boss})
