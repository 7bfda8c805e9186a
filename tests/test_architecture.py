"""Rules of the source tree: which files do I/O, docstrings, one place for each decision."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = (
    "common", "protocol", "storage", "server", "clients", "arrow", "spark", "table", "tools", "simulation", "testing",
)  # fmt: skip

BANNED_MODULES = {
    "time", "random", "secrets", "threading", "multiprocessing", "concurrent", "queue", "subprocess", "tempfile",
    "shutil", "mmap", "socket", "os", "io", "signal", "uvloop", "select", "selectors", "fcntl",
}  # fmt: skip
"""Ways to the world: modules that only the files named in PORTS may import."""
BANNED_CALLS = {"open", "uuid4", "uuid1", "now", "utcnow", "to_thread", "run_in_executor"}
"""Names that only those files may call."""
PORTS = {
    "storage/filesystem.py": "the disk",
    "server/runtime/host.py": "threads, clock, randomness",
    "server/cleaning/worker.py": "the process of the cleaner: its pipes, its priority, its clock",
    "server/cleaning/thread_pool.py": "passes in threads: their priority, their clock",
    "server/cleaning/worker_pool.py": "starting that process and listening to it",
    "server/runtime/service_notifier.py": "systemd's socket",
    "server/network/output.py": "a descriptor of its own for a transport's socket",
    "server/__main__.py": "the process: signals, environment",
    "server/metadata/served/process.py": "the coordinator's process: signals, sessions' passwords",
    "clients/host.py": "a client's clock, randomness and temporary files",
    "tools/console/server.py": "the token of its page",
    "tools/http_server.py": "the socket of a console or a registry, a thread of its own beside a broker",
    "clients/worker_process.py": "starting a process that reads what strangers send, its pipes, its limits, its folder",
    "clients/decoding/worker.py": "temporary files of a compiler, and bytes as a file",
    "clients/security.py": "secrets of an authentication",
    "arrow/host.py": "a reader's clock and waiting",
    "arrow/connection.py": "a reader's socket",
    "arrow/batch_channel.py": "threads of a read",
    "table/host.py": "a follower's clock, waiting, and files that are synced and replaced",
    "spark/host.py": "what Spark's processes are started with, temporary files",
    "simulation/chance.py": "chance, by seed",
    "simulation/disk_names.py": "the operating system's texts for its errors",
    "simulation/host.py": "the real clock, chance, sockets and threads, put out of reach",
    "testing/embedded.py": "a thread of its own for the caller",
    "testing/clock.py": "the clock that a test shifts",
    "testing/disk.py": "a disk that a test makes fail",
    "testing/folders.py": "temporary folders, and who removes them after a kill",
}
"""Where a room may touch the world, and what for. The command line (`tools/cli`) is a program, not the engine."""
PASSED_IN = {"random.Random"}
"""Types of what is passed in are no way to the world."""


@cache
def sources() -> tuple[Path, ...]:
    return tuple(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def violations(paths: Iterable[Path], find: Callable[[Path], Iterable[object]]) -> list[str]:
    """Return what `find` reports, one line per finding, with the file in front."""
    return [f"{name_of(path)}: {found}" for path in paths for found in find(path)]


def is_free(name: str) -> bool:
    return name in PORTS or name.startswith("tools/cli/")


def attribute_path(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{attribute_path(node.value)}.{node.attr}"
    return ""


def ways_to_the_world(tree: ast.Module) -> Iterator[str]:
    """Imports and calls that a file outside the ports must not have."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                if root in BANNED_MODULES - {"random"}:
                    yield f"line {node.lineno}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            root = (node.module or "").split(".")[0]
            names = {alias.name for alias in node.names}
            if root in BANNED_MODULES and {f"{root}.{name}" for name in names} - PASSED_IN:
                yield f"line {node.lineno}: from {node.module} import {', '.join(sorted(names))}"
        elif isinstance(node, ast.Call):
            path = attribute_path(node.func)
            last = path.rpartition(".")[2]
            if path.startswith("random.") or (
                last in BANNED_CALLS and path in {last, f"uuid.{last}", f"datetime.{last}"}
            ):
                yield f"line {node.lineno}: {path}()"


def test_only_the_ports_touch_the_world() -> None:
    paths = [path for path in sources() if not is_free(name_of(path))]
    assert violations(paths, lambda path: ways_to_the_world(tree_of(path))) == []


def test_the_ban_sees_what_it_bans() -> None:
    planted = "import time\nfrom os import path\nimport random\nrandom.random()\nopen('x')\nuuid.uuid4()\n"
    assert len(list(ways_to_the_world(ast.parse(planted)))) == 5


def test_every_module_has_a_docstring() -> None:
    assert [name_of(path) for path in sources() if not ast.get_docstring(tree_of(path))] == []


def test_every_handler_is_served_and_every_served_api_has_a_handler() -> None:
    from barnabas.protocol.apis import API_MESSAGES
    from barnabas.server.apis.table import ALL, FORWARDED

    files = {path.stem for path in (ROOT / "server" / "apis" / "handlers").glob("*.py")} - {"__init__"}
    served = [*ALL.items(), *FORWARDED.items()]
    assert files == {api.handler for _, api in served}
    for api_key, api in served:
        spec = API_MESSAGES[api_key]
        assert spec.versions[0] <= api.lowest <= api.highest <= spec.versions[1], api_key


@pytest.mark.parametrize("request_name", ["ApiVersionsRequest", "SaslHandshakeRequest", "SaslAuthenticateRequest"])
def test_versions_are_agreed_and_passwords_proved_in_one_place(request_name: str) -> None:
    """A shell around a socket decides nothing."""
    asking = {name_of(path) for path in sources() if f"{request_name}(" in text_of(path)}
    assert asking == {"protocol/client_connection.py"}


def test_the_core_is_synchronous() -> None:
    core = [path for path in sources() if name_of(path).startswith(("common/", "protocol/", "storage/"))]

    def coroutines(path: Path) -> list[str]:
        return [node.name for node in nodes_of(tree_of(path)) if isinstance(node, ast.AsyncFunctionDef)]

    assert violations(core, coroutines) == []


STORED_MESSAGES = {
    "protocol/metadata_records.py",
    "protocol/share_coordinator_records.py",
    "protocol/share_group_records.py",
    "protocol/streams_group_records.py",
}

BOTH_LAYOUTS = {"TopicImage": ["server/image/topics_image.py", "server/metadata/metadata_cache.py"]}
"""Names of a thing in the image of a KRaft cluster and in the cache of a cluster with ZooKeeper's layout."""


def test_a_class_name_means_one_thing() -> None:
    """Structs of messages, sent or stored, are called as in Kafka's definitions, each in the module of its message."""
    places: dict[str, list[str]] = {}
    for path in sources():
        if path.parent.name != "messages" and name_of(path) not in STORED_MESSAGES:
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(name_of(path))
    assert {name: sorted(found) for name, found in places.items() if len(found) > 1} == BOTH_LAYOUTS


def name_in(node: ast.AST) -> str:
    """The name that it is, or the last part of a dotted one."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def cut_in_two(trees: Iterable[ast.Module]) -> list[str]:
    """Classes with methods that nobody names but themselves and their one subclass: these two are one class."""
    nodes = [node for tree in trees for node in nodes_of(tree)]
    named = Counter(map(name_in, nodes))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    heirs: dict[str, list[ast.ClassDef]] = {}
    for one in classes:
        for base in one.bases:
            heirs.setdefault(name_in(base.value if isinstance(base, ast.Subscript) else base), []).append(one)
    found = []
    for one in classes:
        has_methods = any(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in one.body)
        if has_methods and len(heirs.get(one.name, [])) == 1:
            (heir,) = heirs[one.name]
            if named[one.name] == sum(name_in(node) == one.name for half in (one, heir) for node in ast.walk(half)):
                found.append(one.name)
    return found


def test_no_class_is_cut_in_two_by_a_base_class() -> None:
    """A file that grows too long is relieved of a part that stands by itself. A base class is something that others
    make, take, or derive from, too."""
    assert cut_in_two(tree_of(path) for path in sources()) == []


def test_classes_that_are_cut_in_two_are_seen() -> None:
    queries = ast.parse("class LogQueries:\n    def size(self) -> int:\n        return LogQueries.size(self)")
    log = ast.parse("from .q import LogQueries\nclass Log(q.LogQueries[T]):\n    def end(self, log: Log): ...")
    assert cut_in_two([queries, log]) == ["LogQueries"]
    for other in ("def f(log: LogQueries): ...", "log = LogQueries()", "class Remote(LogQueries): ..."):
        assert cut_in_two([queries, log, ast.parse(other)]) == []
    assert cut_in_two([ast.parse("class Settings:\n    broker_id: int\nclass Config(Settings): ...")]) == []


def test_a_logger_is_one_of_its_room() -> None:
    """Whatever strangers call themselves, a line of the log is one line: `room_logger` sees to it."""
    free = {"common/room_logger.py", "server/config/broker_loggers.py", "server/__main__.py"}
    asking = {name_of(path) for path in sources() if "getLogger(" in text_of(path)}
    assert asking <= free

    def misnamed(path: Path) -> list[str]:
        loggers = [node for node in tree_of(path).body if isinstance(node, ast.Assign)] * (
            "room_logger(" in text_of(path)
        )
        return [
            ast.unparse(node.targets[0])
            for node in loggers
            if "room_logger(" in ast.unparse(node.value) and ast.unparse(node.targets[0]) != "logger"
        ]

    assert violations(sources(), misnamed) == []


def unknown_paths(text: str, beside: Path = ROOT) -> list[str]:
    """Files and folders in backticks that are not there, but for what is made at work and ignored by git.

    A bare name of a file stands for one beside the text or at the top, or in a folder that the same section names.
    """
    missing: list[str] = []
    made = set((ROOT / ".gitignore").read_text().split())
    for section in re.split(r"(?m)^## ", re.sub(r"(?ms)^```.*?^```", "", text)):
        paths = re.findall(r"`((?:[\w.-]+/)*(?:[\w.-]+/|[\w-]+\.(?:py|md|toml|c|h|pyi)))`", section)
        places = {ROOT, beside}
        named = {place / path for place in places for path in paths if "/" in path}
        folders = {path.parent if path.is_file() else path for path in named}
        missing += [
            path
            for path in paths
            if path not in made
            and not any((place / path).exists() for place in (places if "/" in path else places | folders))
        ]
    return missing


def test_files_and_folders_that_the_documentation_names_exist() -> None:
    pages = [
        *ROOT.glob("*/README.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    assert violations(pages, lambda page: unknown_paths(page.read_text(), page.parent)) == []


def test_files_of_tests_that_programs_name_exist() -> None:
    """`make sanitize` and others select tests by their paths."""
    programs = [ROOT / "Makefile", *sorted((ROOT / "soak").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]

    def missing(path: Path) -> list[str]:
        named = re.findall(r"\btests/[\w/]+\.py\b", path.read_text())
        return [name for name in named if not (ROOT / name).exists()]

    assert violations(programs, missing) == []


def test_paths_that_are_not_there_are_seen() -> None:
    text = "`server/no.py` `server/broker.py`\n## A\n`broker.py` `no/such/`\n## B\n`server/` `broker.py` `x/y`"
    assert unknown_paths(text) == ["server/no.py", "broker.py", "no/such/"]


def test_the_rooms_of_the_server_are_told_in_their_order() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["barnabas.server"])
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Rooms of the server")[2].partition("\n## ")[0]
    told = re.findall(r"`server/(\w+)(?:/|\.py)`", "".join(re.findall(r"(?m)^\| `[^|]*\|", section)))
    assert told == [room for layer in layers for room in layer.split(" | ")]


LOG_OWNERS = ("server/replication/", "server/cleaning/")
"""The rooms that own the logs of partitions: replication, and the cleaner."""


def logs_touched(tree: ast.Module) -> list[str]:
    """Where the log of something is read or taken; what a logger does with lines is something else."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in nodes_of(tree)
        if isinstance(node, ast.Attribute) and node.attr == "log" and not ast.unparse(node.value).endswith("logger")
    ]


def test_logs_of_partitions_are_read_by_their_owners_only() -> None:
    """Other rooms call methods of the partition, or of the replica manager."""
    server = [path for path in sources() if name_of(path).startswith("server/")]
    others = [path for path in server if not name_of(path).startswith(LOG_OWNERS)]
    assert violations(others, lambda path: logs_touched(tree_of(path))) == []


def test_a_touched_log_is_seen() -> None:
    planted = "end = shard.partition.log.log_end_offset\nlog = partition.log\nself._logger.log(level, 'a line')\n"
    assert {one.partition(":")[0] for one in logs_touched(ast.parse(planted))} == {"line 1", "line 2"}


Graph = dict[str, set[str]]
"""The modules that each module imports, for types too."""

OWNERS = (
    ("clients/share/share_in_flight_batch.py", "clients/share/share_consume_request_manager.py"),
    ("server/apis/joint_fetch.py", "server/apis/handlers/fetch.py"),
    ("server/apis/request_context.py", "server/apis/handlers/fetch.py"),
    ("server/controller/controller_channel_manager.py", "server/controller/kafka_controller.py"),
    ("server/controller/controller_elector.py", "server/controller/kafka_controller.py"),
    ("server/metadata/served/connection.py", "server/metadata/served/tree_server.py"),
    ("server/metadata/served/four_letter_commands.py", "server/metadata/served/tree_server.py"),
    ("server/network/connection.py", "server/network/socket_server.py"),
    ("server/network/request_turn.py", "server/network/connection.py"),
    ("server/replication/partition.py", "server/replication/replica_manager.py"),
    ("server/replication/replica_fetcher.py", "server/replication/replica_manager.py"),
    ("server/security/session.py", "server/security/sasl_server_authenticator.py"),
    ("table/dead_letters.py", "table/follower.py"),
)
"""All imports that close a cycle: for types only, where an object and its owner refer to each other."""


def imports_of(path: Path, modules: Iterable[Path]) -> Iterator[Path]:
    """Yield the modules that a module imports by relative imports."""
    for node in nodes_of(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            target = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for alias in node.names:
                places = (target / f"{alias.name}.py", target.with_suffix(".py"), target / "__init__.py")
                yield from [place for place in places if place in modules][:1]


def graph_of(paths: Iterable[Path]) -> Graph:
    modules = frozenset(paths)
    return {name_of(path): {name_of(one) for one in imports_of(path, modules)} for path in modules}


def cycle_in(graph: Graph) -> list[str]:
    """Return a cycle of modules, empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_import_each_other_in_one_direction() -> None:
    graph = graph_of(sources())
    for module, owner in OWNERS:
        graph[module].discard(owner)
    assert cycle_in(graph) == []
    unused = [
        f"{module} -> {owner}" for module, owner in OWNERS if not cycle_in({**graph, module: {*graph[module], owner}})
    ]
    assert unused == [], "these imports close no cycle any more"


def test_a_cycle_of_modules_is_seen(tmp_path: Path) -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) in (["b", "c", "b"], ["c", "b", "c"])
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


LOOP_SHARING = "server/runtime/loop_sharing.py"


def slices_by_hand(text: str) -> list[str]:
    """Budgets without a unit in their names, and places where work is cut without a helper of `LOOP_SHARING`."""
    names = r"(?m)^_?[A-Z_]*(?:AT_ONCE|AT_A_TIME|A_TURN|IN_ROUND|IN_A_REQUEST)\b.*= .*\d"
    return re.findall(names, text) + re.findall(r"sleep\(0\)|% \w+ == 0:\s+await .*", text)


def test_the_loop_is_shared_by_the_helpers_of_one_module() -> None:
    # The simulation is no server, and the console is a client, which does not import the server.
    paths = [
        path for path in sources() if not name_of(path).startswith((LOOP_SHARING, "simulation/", "tools/console/"))
    ]
    assert violations(paths, lambda path: slices_by_hand(text_of(path))) == []


@pytest.mark.parametrize(
    "planted",
    [
        "EXPIRED_AT_ONCE = 100",
        "ANSWERS_AT_ONCE, PAUSE_S = 3, 0.001",
        "_COPIED_AT_ONCE = 256 * 1024",
        "CONFIGS_AT_A_TIME = 100",
        "LOGS_A_TURN: Final = 64",
        "await asyncio.sleep(0)",
        "if count % RECORDS == 0:\n    await next_turn()",
    ],
)
def test_slices_by_hand_are_seen(planted: str) -> None:
    assert len(slices_by_hand(f"import asyncio\n{planted}\n")) == 1
