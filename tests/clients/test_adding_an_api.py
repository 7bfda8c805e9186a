"""docs/adding-an-api.md is done as it stands there: to a copy of the source tree, which then serves one API more."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.protocol.apis import ApiKey

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-an-api.md").read_text()
PLACE = re.compile(r"# (\S+\.py)(?:, in (\w+))?\n")
"""The first line of a block: the file it is, or the file and the list in it that it is a part of."""
WORST_REQUESTS = "tests/hostile/test_worst_requests.py"
PATIENCE_S = 240
"""With one command; a test runs up to three."""
pytestmark = pytest.mark.timeout(900)

IN_FULL = """
from tests.server.apis.test_acl_checks import CLUSTER, Guard
from tests.server.data_plane import PAGE_CACHE, DataPlane, play

from barnabas.protocol.acls import AclOperation
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest


def test_it_is_advertised_and_refused_without_the_right() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        assert connection.api_versions[ApiKey.UNREGISTER_BROKER] == (0, 0)
        answer = await connection.send(UnregisterBrokerRequest(broker_id=77))
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        connection.close()

    play(talk, settings=PAGE_CACHE, authorizer=Guard((AclOperation.ALTER, *CLUSTER)))
"""


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def copy_of_the_tree(folder: Path) -> Path:
    """All files but those that git passes over; compiled code comes along."""
    passed_over = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()} - {"*.so"}
    copy = folder / "checkout"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", *passed_over))
    return copy


def number_of(row: ast.expr | None) -> int:
    """Of the API that a row of a list or a table is about."""
    assert isinstance(row, ast.Attribute), row
    return ApiKey[row.attr]


def insert(path: Path, name: str, rows: str) -> None:
    """Put rows into the list of that name in a file, where their number says, unless they are there."""
    text = path.read_text()
    lists: dict[str, ast.expr | None] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            lists[ast.unparse(target)] = node.value
    there = lists.get(name)
    assert isinstance(there, ast.Tuple | ast.Dict), f"no list {name} in {path}: docs/adding-an-api.md is stale"
    number = ApiKey[re.findall(r"ApiKey\.(\w+)", rows)[0]]
    others = there.keys if isinstance(there, ast.Dict) else there.elts
    if any(number_of(one) == number for one in others):
        assert rows.strip() in text, f"{path} has another row: docs/adding-an-api.md is stale"
        return
    following = next(one for one in others if number_of(one) > number)
    assert following is not None
    lines = text.splitlines(keepends=True)
    line, column = following.lineno - 1, following.col_offset
    lines[line] = lines[line][:column] + rows.strip() + "\n" + " " * 4 + lines[line][column:]
    path.write_text("".join(lines))


def follow(page: str, copy: Path) -> list[Path]:
    """Do to a source tree what the page says; the files that are new."""
    new = []
    for block in blocks("python", page):
        if place := PLACE.match(block):
            path, code = copy / place[1], block[place.end() :]
            if place[2]:
                assert path.is_file(), f"no file {path}: docs/adding-an-api.md is stale"
                insert(path, place[2], code)
            else:
                assert path.parent.is_dir(), f"no folder {path.parent}: docs/adding-an-api.md is stale"
                if path.exists():
                    assert path.read_text() == code, f"{path} differs: docs/adding-an-api.md is stale"
                    continue
                path.write_text(code)
                new.append(path)
    return new


def run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Python in the copy, which knows of no other checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=copy,
        env=environment | {"PYTHONPATH": os.pathsep.join((str(copy / ".src"), str(copy)))},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def passes(copy: Path, *command: str) -> str:
    """What it prints."""
    done = run(copy, *command)
    told = (done.stdout + done.stderr)[-4000:]
    assert done.returncode == 0, f"{shlex.join(command)} fails once docs/adding-an-api.md is followed:\n{told}"
    return done.stdout


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A copy of the source tree with the API of the page, and the files that are new there."""
    copy = copy_of_the_tree(tmp_path_factory.mktemp("adding-an-api"))
    return copy, follow(PAGE, copy)


@pytest.fixture(scope="module")
def copy(followed: tuple[Path, list[Path]]) -> Path:
    return followed[0]


def test_a_handler_and_its_test_are_new_and_whole(followed: tuple[Path, list[Path]]) -> None:
    copy, new = followed
    handler, test = (path.relative_to(copy).as_posix() for path in new)
    assert handler == "server/apis/handlers/unregister_broker.py"
    passes(copy, "-c", f"import barnabas.{handler.removesuffix('.py').replace('/', '.')}")
    assert "1 passed" in passes(copy, "-m", "pytest", "-q", test)


def test_what_the_page_says_to_run(copy: Path) -> None:
    ((python, *command),) = (block.split() for block in blocks("sh"))
    assert python == "python"
    passes(copy, *command)
    passes(copy, "-m", "ruff", "check", "protocol", "server", "tests/server/apis")
    passes(copy, "-m", "ruff", "format", "--check", "protocol", "server", "tests/server/apis")


def test_it_is_served_in_full(copy: Path, tmp_path: Path) -> None:
    in_full = tmp_path / "test_in_full.py"
    in_full.write_text(IN_FULL)
    assert "1 passed" in passes(copy, "-m", "pytest", "-q", "--rootdir", str(copy), str(in_full))


def test_the_call_that_a_contributor_is_shown(copy: Path) -> None:
    *_, call = blocks("python")
    assert not PLACE.match(call)
    answer = passes(copy, "-c", call)
    assert "UnregisterBrokerResponse(" in answer and "Broker 77 is not registered." in answer


def test_the_worst_request_has_to_be_known(copy: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(copy, tmp_path / "checkout", symlinks=True))
    command = ("-m", "pytest", "-q", f"{WORST_REQUESTS}::test_every_api_is_tried")
    unknown = run(copy, *command)
    assert unknown.returncode == 1 and "UNREGISTER_BROKER" in unknown.stdout, unknown.stdout + unknown.stderr
    assert f"`{WORST_REQUESTS}`" in PAGE and "an API whose request has no list to `SMALL`" in " ".join(PAGE.split())
    with (copy / WORST_REQUESTS).open("a") as file:
        file.write("\nSMALL |= {ApiKey.UNREGISTER_BROKER}\n")
    assert "1 passed" in passes(copy, *command)


@pytest.mark.parametrize(("file", "name"), [("protocol/apis.py", "_CODED"), ("server/apis/table.py", "SERVED")])
def test_a_place_that_is_gone_is_told(file: str, name: str, tmp_path: Path) -> None:
    renamed = tmp_path / Path(file).name
    renamed.write_text(re.sub(rf"\b{name}\b", "OTHER", (ROOT / file).read_text()))
    with pytest.raises(AssertionError, match=rf"no list {name} in .*{renamed.name}: docs/adding-an-api.md is stale"):
        insert(renamed, name, "ApiKey.UNREGISTER_BROKER,")


def test_a_stale_import_is_told(tmp_path: Path) -> None:
    copy = copy_of_the_tree(tmp_path)
    stale = re.sub(r"^(from \.{3}\S+ import )\w+", r"\1Gone", PAGE, count=1, flags=re.MULTILINE)
    follow(stale, copy)
    with pytest.raises(AssertionError, match=r"adding-an-api.md is followed:\n(?s:.*)cannot import name 'Gone'"):
        passes(copy, "-c", "import barnabas.server.apis.handlers.unregister_broker")
