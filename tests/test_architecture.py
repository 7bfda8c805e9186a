"""Rules of the source tree: the files that may do I/O, docstrings, and one place for each decision."""

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
"""Modules for I/O, clocks, threads and randomness, which only the files in PORTS may import."""
BANNED_CALLS = {"open", "uuid4", "uuid1", "now", "utcnow", "to_thread", "run_in_executor"}
"""Functions that only the files in PORTS may call."""
PORTS = {
    "storage/filesystem.py": "the disk",
    "server/runtime/host.py": "threads, clock, randomness",
    "server/cleaning/worker.py": "the worker process of the cleaner: pipes, priority, clock",
    "server/cleaning/thread_pool.py": "cleaner threads: priority, clock",
    "server/cleaning/worker_pool.py": "starts the worker process of the cleaner and reads its pipes",
    "server/runtime/service_notifier.py": "the notification socket of systemd",
    "server/network/output.py": "a duplicate descriptor of a transport's socket",
    "server/__main__.py": "the broker process: signals, environment",
    "server/metadata/served/process.py": "the coordinator process: signals, session passwords",
    "clients/host.py": "the clock, randomness and temporary files of clients",
    "tools/console/server.py": "the token of the console page",
    "tools/http_server.py": "the socket of a console or a registry, and its thread in a broker process",
    "clients/worker_process.py": "a sandboxed process that parses untrusted data: pipes, limits, folder",
    "clients/decoding/worker.py": "temporary files of a compiler, and in-memory files",
    "clients/security.py": "nonces of an authentication",
    "arrow/host.py": "the clock and the waits of a reader",
    "arrow/connection.py": "the socket of a reader",
    "arrow/batch_channel.py": "the threads of a read",
    "table/host.py": "the clock and the waits of a follower, and files that are synced and replaced",
    "spark/host.py": "the environment of Spark processes, temporary files",
    "simulation/chance.py": "random numbers from a seed",
    "simulation/disk_names.py": "the error messages of the operating system",
    "simulation/host.py": "replaces the real clock, randomness, sockets and threads",
    "testing/embedded.py": "the thread of an embedded broker",
    "testing/clock.py": "a clock that tests can shift",
    "testing/disk.py": "a disk with injected failures",
    "testing/folders.py": "temporary folders, and their removal after a kill",
}
"""Files that may use these modules and functions, and the purpose. All of `tools/cli` may, because it is a program."""
PASSED_IN = {"random.Random"}
"""Types of parameters, which may be imported everywhere."""


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
    """Return one line per finding of `find`, with the file in front."""
    return [f"{name_of(path)}: {found}" for path in paths for found in find(path)]


def is_exempt(name: str) -> bool:
    return name in PORTS or name.startswith("tools/cli/")


def attribute_path(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{attribute_path(node.value)}.{node.attr}"
    return ""


def banned_uses(tree: ast.Module) -> Iterator[str]:
    """Yield the imports and calls that a file outside PORTS must not have."""
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


def test_only_ports_do_io() -> None:
    paths = [path for path in sources() if not is_exempt(name_of(path))]
    assert violations(paths, lambda path: banned_uses(tree_of(path))) == []


def test_banned_imports_and_calls_are_found() -> None:
    planted = "import time\nfrom os import path\nimport random\nrandom.random()\nopen('x')\nuuid.uuid4()\n"
    assert len(list(banned_uses(ast.parse(planted)))) == 5


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
def test_one_module_negotiates_versions_and_authenticates(request_name: str) -> None:
    """The classes around a socket only pass bytes to `protocol/client_connection.py`."""
    users = {name_of(path) for path in sources() if f"{request_name}(" in text_of(path)}
    assert users == {"protocol/client_connection.py"}


def test_the_core_has_no_coroutines() -> None:
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
"""Classes that exist twice: in the image of a KRaft cluster, and in the metadata cache of a ZooKeeper cluster."""


def test_class_names_are_unique() -> None:
    """Structs of requests, responses and stored records are exempt, because Kafka defines their names."""
    places: dict[str, list[str]] = {}
    for path in sources():
        if path.parent.name != "messages" and name_of(path) not in STORED_MESSAGES:
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(name_of(path))
    assert {name: sorted(found) for name, found in places.items() if len(found) > 1} == BOTH_LAYOUTS


def name_in(node: ast.AST) -> str:
    """Return the name of a node, or the last part of a dotted name."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def split_classes(trees: Iterable[ast.Module]) -> list[str]:
    """Return base classes with methods whose only user is their single subclass: the two are one class."""
    nodes = [node for tree in trees for node in nodes_of(tree)]
    named = Counter(map(name_in, nodes))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    subclasses: dict[str, list[ast.ClassDef]] = {}
    for one in classes:
        for base in one.bases:
            subclasses.setdefault(name_in(base.value if isinstance(base, ast.Subscript) else base), []).append(one)
    found = []
    for one in classes:
        has_methods = any(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in one.body)
        if has_methods and len(subclasses.get(one.name, [])) == 1:
            (subclass,) = subclasses[one.name]
            if named[one.name] == sum(name_in(node) == one.name for half in (one, subclass) for node in ast.walk(half)):
                found.append(one.name)
    return found


def test_no_class_is_split_into_base_class_and_subclass() -> None:
    """A long file is split into separate objects. A base class has several subclasses, or other users."""
    assert split_classes(tree_of(path) for path in sources()) == []


def test_split_classes_are_found() -> None:
    queries = ast.parse("class LogQueries:\n    def size(self) -> int:\n        return LogQueries.size(self)")
    log = ast.parse("from .q import LogQueries\nclass Log(q.LogQueries[T]):\n    def end(self, log: Log): ...")
    assert split_classes([queries, log]) == ["LogQueries"]
    for other in ("def f(log: LogQueries): ...", "log = LogQueries()", "class Remote(LogQueries): ..."):
        assert split_classes([queries, log, ast.parse(other)]) == []
    assert split_classes([ast.parse("class Settings:\n    broker_id: int\nclass Config(Settings): ...")]) == []


def test_loggers_come_from_room_logger() -> None:
    """`room_logger` escapes line breaks, so that a client cannot write additional log lines."""
    exempt = {"common/room_logger.py", "server/config/broker_loggers.py", "server/__main__.py"}
    users = {name_of(path) for path in sources() if "getLogger(" in text_of(path)}
    assert users <= exempt

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


def unknown_paths(text: str, folder: Path = ROOT) -> list[str]:
    """Return files and folders in backticks that do not exist, except generated files that git ignores.

    A file name without a folder is searched next to the text, in the root, and in the folders that the same section
    names.
    """
    missing: list[str] = []
    ignored = set((ROOT / ".gitignore").read_text().split())
    for section in re.split(r"(?m)^## ", re.sub(r"(?ms)^```.*?^```", "", text)):
        paths = re.findall(r"`((?:[\w.-]+/)*(?:[\w.-]+/|[\w-]+\.(?:py|md|toml|c|h|pyi)))`", section)
        places = {ROOT, folder}
        named = {place / path for place in places for path in paths if "/" in path}
        folders = {path.parent if path.is_file() else path for path in named}
        missing += [
            path
            for path in paths
            if path not in ignored
            and not any((place / path).exists() for place in (places if "/" in path else places | folders))
        ]
    return missing


def test_files_named_in_the_documentation_exist() -> None:
    pages = [
        *ROOT.glob("*/README.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    assert violations(pages, lambda page: unknown_paths(page.read_text(), page.parent)) == []


def test_test_files_named_in_programs_exist() -> None:
    """Programs such as `make sanitize` select tests by their paths."""
    programs = [ROOT / "Makefile", *sorted((ROOT / "soak").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]

    def missing(path: Path) -> list[str]:
        named = re.findall(r"\btests/[\w/]+\.py\b", path.read_text())
        return [name for name in named if not (ROOT / name).exists()]

    assert violations(programs, missing) == []


def test_missing_paths_are_found() -> None:
    text = "`server/no.py` `server/broker.py`\n## A\n`broker.py` `no/such/`\n## B\n`server/` `broker.py` `x/y`"
    assert unknown_paths(text) == ["server/no.py", "broker.py", "no/such/"]


def test_the_architecture_page_lists_the_server_packages_in_order() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["barnabas.server"])
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Rooms of the server")[2].partition("\n## ")[0]
    listed = re.findall(r"`server/(\w+)(?:/|\.py)`", "".join(re.findall(r"(?m)^\| `[^|]*\|", section)))
    assert listed == [room for layer in layers for room in layer.split(" | ")]


LOG_OWNERS = ("server/replication/", "server/cleaning/")
"""The packages that own the logs of partitions: replication, and the cleaner."""


def log_accesses(tree: ast.Module) -> list[str]:
    """Return the lines that access an attribute `log`, except the method of a logger."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in nodes_of(tree)
        if isinstance(node, ast.Attribute) and node.attr == "log" and not ast.unparse(node.value).endswith("logger")
    ]


def test_only_owners_access_the_logs_of_partitions() -> None:
    """Other packages call methods of the partition, or of the replica manager."""
    server = [path for path in sources() if name_of(path).startswith("server/")]
    others = [path for path in server if not name_of(path).startswith(LOG_OWNERS)]
    assert violations(others, lambda path: log_accesses(tree_of(path))) == []


def test_log_accesses_are_found() -> None:
    planted = "end = shard.partition.log.log_end_offset\nlog = partition.log\nself._logger.log(level, 'a line')\n"
    assert {one.partition(":")[0] for one in log_accesses(ast.parse(planted))} == {"line 1", "line 2"}


Graph = dict[str, set[str]]
"""The modules that each module imports, including imports for type annotations."""

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
"""The imports that close a cycle. They are for type annotations, where an object refers to its owner."""


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


def test_imports_have_no_cycles() -> None:
    graph = graph_of(sources())
    for module, owner in OWNERS:
        graph[module].discard(owner)
    assert cycle_in(graph) == []
    unused = [
        f"{module} -> {owner}" for module, owner in OWNERS if not cycle_in({**graph, module: {*graph[module], owner}})
    ]
    assert unused == [], "these imports no longer close a cycle"


def test_import_cycles_are_found(tmp_path: Path) -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) in (["b", "c", "b"], ["c", "b", "c"])
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


LOOP_SHARING = "server/runtime/loop_sharing.py"


def manual_slices(text: str) -> list[str]:
    """Return budgets without a unit in their names, and loops that yield without a helper of `LOOP_SHARING`."""
    names = r"(?m)^_?[A-Z_]*(?:AT_ONCE|AT_A_TIME|A_TURN|IN_ROUND|IN_A_REQUEST)\b.*= .*\d"
    return re.findall(names, text) + re.findall(r"sleep\(0\)|% \w+ == 0:\s+await .*", text)


def test_long_work_yields_with_the_helpers_of_one_module() -> None:
    # The simulation is not a server, and the console is a client, which must not import the server.
    paths = [
        path for path in sources() if not name_of(path).startswith((LOOP_SHARING, "simulation/", "tools/console/"))
    ]
    assert violations(paths, lambda path: manual_slices(text_of(path))) == []


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
def test_manual_slices_are_found(planted: str) -> None:
    assert len(manual_slices(f"import asyncio\n{planted}\n")) == 1
