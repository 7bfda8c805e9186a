"""The rules of the house, held by a machine: ports, sizes, one place for each API."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("protocol", "storage", "server", "clients", "simulation", "testing")

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
    "server/network/file_sender.py": "a descriptor of its own for a transport's socket",
    "server/__main__.py": "the process: signals, environment",
    "server/metadata/served/process.py": "the coordinator's process: signals, sessions' passwords",
    "clients/host.py": "a client's clock, randomness and temporary files",
    "clients/console/server.py": "the token of its page",
    "clients/registry/compiler.py": "the process of the compiler of .proto files",
    "clients/http_server.py": "the socket of a console or a registry, a thread of its own beside a broker",
    "clients/console/decoding/process.py": "starting the process that decodes, and talking to it",
    "clients/console/decoding/worker.py": "the process that decodes: its pipes, its limits, its temporary files",
    "clients/security.py": "secrets of an authentication",
    "clients/spark/host.py": "what Spark's processes are started with, clock, waiting, temporary files",
    "clients/spark/connection.py": "a task's socket",
    "simulation/chance.py": "chance, by seed",
    "simulation/disk_names.py": "the operating system's texts for its errors",
    "simulation/host.py": "the real clock, chance, sockets and threads, put out of reach",
    "testing/embedded.py": "a thread of its own for the caller",
    "testing/clock.py": "the clock that a test shifts",
    "testing/disk.py": "a disk that a test makes fail",
    "testing/folders.py": "temporary folders, and who removes them after a kill",
}
"""Where a room may touch the world, and what for. The command line (`clients/cli`) is a program, not the engine."""
PASSED_IN = {"random.Random"}
"""Types of what is passed in are no way to the world."""

MOST_LINES = 600
MOST_FUNCTION_LINES = 60
MOST_POSITIONAL = 5


def sources() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_free(name: str) -> bool:
    return name in PORTS or name.startswith("clients/cli/")


def attribute_path(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{attribute_path(node.value)}.{node.attr}"
    return ""


def ways_to_the_world(tree: ast.Module) -> Iterator[str]:
    """Imports and calls that a file outside the ports must not have."""
    for node in ast.walk(tree):
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


@pytest.mark.parametrize("path", list(sources()), ids=name_of)
def test_only_the_ports_touch_the_world(path: Path) -> None:
    if not is_free(name_of(path)):
        assert list(ways_to_the_world(ast.parse(path.read_text()))) == []


def test_the_ban_sees_what_it_bans() -> None:
    planted = "import time\nfrom os import path\nimport random\nrandom.random()\nopen('x')\nuuid.uuid4()\n"
    assert len(list(ways_to_the_world(ast.parse(planted)))) == 5


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def statement_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        first = function.body[0]
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


@pytest.mark.parametrize("path", list(sources()), ids=name_of)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert text.count("\n") <= MOST_LINES
    for function in functions(tree):
        assert statement_lines(function) <= MOST_FUNCTION_LINES, function.name
        positional = [argument.arg for argument in function.args.posonlyargs + function.args.args]
        count = len([name for name in positional if name not in {"self", "cls"}])
        assert count <= MOST_POSITIONAL, f"{function.name} takes {count} positional parameters"


@pytest.mark.parametrize("path", list(sources()), ids=name_of)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, "no docstring"


def test_every_handler_is_served_and_every_served_api_has_a_handler() -> None:
    from barnabas.protocol.apis import API_MESSAGES
    from barnabas.server.apis.table import ALL

    files = {path.stem for path in (ROOT / "server" / "apis" / "handlers").glob("*.py")} - {"__init__"}
    assert files == {api.handler for api in ALL.values()}
    for api_key, api in ALL.items():
        spec = API_MESSAGES[api_key]
        assert spec.versions[0] <= api.lowest <= api.highest <= spec.versions[1], api_key


@pytest.mark.parametrize("request_name", ["ApiVersionsRequest", "SaslHandshakeRequest", "SaslAuthenticateRequest"])
def test_versions_are_agreed_and_passwords_proved_in_one_place(request_name: str) -> None:
    """A shell around a socket decides nothing."""
    asking = {name_of(path) for path in sources() if f"{request_name}(" in path.read_text()}
    assert asking == {"protocol/client_connection.py"}


def test_the_core_is_synchronous() -> None:
    for room in ("protocol", "storage"):
        for path in sorted((ROOT / room).rglob("*.py")):
            waiting = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.AsyncFunctionDef)]
            assert waiting == [], name_of(path)


def test_a_class_name_means_one_thing() -> None:
    """Structs of messages are called as in Kafka's definitions, each in the module of its message."""
    places: dict[str, list[str]] = {}
    for path in sources():
        if path.parent.name != "messages":
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(name_of(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def name_in(node: ast.AST) -> str:
    """The name that it is, or the last part of a dotted one."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def cut_in_two(trees: Iterable[ast.Module]) -> list[str]:
    """Classes with methods that nobody names but themselves and their one subclass: these two are one class."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
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
    assert cut_in_two(ast.parse(path.read_text()) for path in sources()) == []


def test_classes_that_are_cut_in_two_are_seen() -> None:
    queries = ast.parse("class LogQueries:\n    def size(self) -> int:\n        return LogQueries.size(self)")
    log = ast.parse("from .q import LogQueries\nclass Log(q.LogQueries[T]):\n    def end(self, log: Log): ...")
    assert cut_in_two([queries, log]) == ["LogQueries"]
    for other in ("def f(log: LogQueries): ...", "log = LogQueries()", "class Remote(LogQueries): ..."):
        assert cut_in_two([queries, log, ast.parse(other)]) == []
    assert cut_in_two([ast.parse("class Settings:\n    broker_id: int\nclass Config(Settings): ...")]) == []


def test_a_logger_is_one_of_its_room() -> None:
    """Whatever strangers call themselves, a line of the log is one line: `room_logger` sees to it."""
    free = {"protocol/room_logger.py", "server/config/broker_loggers.py", "server/__main__.py"}
    asking = {name_of(path) for path in sources() if "getLogger(" in path.read_text()}
    assert asking <= free
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and "room_logger(" in ast.unparse(node.value):
                assert ast.unparse(node.targets[0]) == "logger", name_of(path)


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


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*/README.md"), ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=name_of
)
def test_files_and_folders_that_the_documentation_names_are_there(page: Path) -> None:
    assert unknown_paths(page.read_text(), page.parent) == []


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


APIS = ROOT / "server" / "apis"
MOST_NAMES = 5
"""Public names of a class that handlers are given whole; of a larger one they see a port."""
DATA = {
    "bool", "bytes", "float", "int", "str", "Callable",
    "Iterable", "Iterator", "Mapping", "Sequence", "dict", "frozenset", "list", "set", "tuple",
}  # fmt: skip


def alternatives(annotation: ast.expr | None) -> list[ast.expr]:
    """The members of a union, without None."""
    if isinstance(annotation, ast.BinOp):
        return alternatives(annotation.left) + alternatives(annotation.right)
    is_none = isinstance(annotation, ast.Constant) and annotation.value is None
    return [] if annotation is None or is_none else [annotation]


def type_name(annotation: ast.expr | None) -> str:
    """What an annotation names before its brackets, None left aside."""
    names = {one.value if isinstance(one, ast.Subscript) else one for one in alternatives(annotation)}
    return " | ".join(sorted(map(ast.unparse, names)))


def is_data(annotation: ast.expr | None) -> bool:
    return annotation is not None and set(type_name(annotation).split(" | ")) <= DATA


def is_port(declared: ast.ClassDef) -> bool:
    return any(type_name(base) == "Protocol" for base in declared.bases)


class Parts:
    """What `Services` says of the parts that handlers get, read from the code."""

    def __init__(self) -> None:
        tree = ast.parse((APIS / "services.py").read_text())
        services = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Services")
        self.types = {
            node.target.id: node.annotation
            for node in services.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        self.derived = {one.name: one.returns for one in functions(services) if one.name != "served"}
        """Made of the parts for handlers."""
        ports = ast.parse((APIS / "ports.py").read_text())
        self.classes = {one.name: one for one in ports.body if isinstance(one, ast.ClassDef) and is_port(one)}
        self.ports = set(self.classes)
        given = [*self.types.values(), *self.derived.values()]
        self.names = self.ports.union(*(type_name(one).split(" | ") for one in given))
        """Types that a part has for handlers."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level and node.module != "ports":
                folder = (APIS, ROOT / "server", ROOT)[node.level - 1]
                source = ast.parse((folder / f"{(node.module or '').replace('.', '/')}.py").read_text())
                wanted = {alias.name for alias in node.names}
                self.classes |= {one.name: one for one in source.body if getattr(one, "name", "") in wanted}

    def public_names(self, declared: ast.ClassDef) -> set[str]:
        """Methods, and attributes whether they are declared or given by `__init__`."""
        names = {one.name for one in declared.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        for node in ast.walk(declared):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node in declared.body:
                names.add(node.target.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names |= {node.attr} if ast.unparse(node.value) == "self" else set()
        return {name for name in names if not name.startswith("_")}

    def is_narrow(self, annotation: ast.expr) -> bool:
        """Whether handlers may have it: a port, a callable, plain values, or a small class."""
        declared = self.classes.get(type_name(annotation))
        if declared is None:
            return is_data(annotation)
        is_plain = not any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in declared.body)
        return declared.name in self.ports or is_plain or len(self.public_names(declared)) <= MOST_NAMES

    def is_given(self, part: str, name: str) -> bool:
        """Whether reading this of a part gives data or a method, and not somebody behind it."""
        declared = self.classes.get(part)
        if declared is None:
            return part in DATA
        for node in declared.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                is_property = any("property" in ast.unparse(one) for one in node.decorator_list)
                return is_data(node.returns) if is_property else True
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
                return is_data(node.annotation)
        return False


def handlers() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((APIS / "handlers").glob("*.py")):
        yield path.stem, ast.parse(path.read_text())


def wishes(modules: Iterable[tuple[str, ast.Module]] | None = None) -> Iterator[tuple[str, ast.arg]]:
    """The parts that handlers name."""
    for name, tree in handlers() if modules is None else modules:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "handle":
                yield from ((name, argument) for argument in node.args.kwonlyargs)


def test_handlers_are_given_nothing_large() -> None:
    parts = Parts()
    assert {name for name, annotation in parts.types.items() if not parts.is_narrow(annotation)} == set()


def seen_as_another(wished: Iterable[tuple[str, ast.arg]], given: dict[str, ast.expr | None]) -> list[str]:
    """Handlers that see in a part something else than `Services` has.

    Where a part may be None, so may it be for the handler, unless its API is served only where the part is there.
    """
    from barnabas.server.apis.table import BETWEEN_BROKERS, TELEMETRY

    there = {"orders": BETWEEN_BROKERS, "telemetry": TELEMETRY}
    wrong = []
    for handler, argument in wished:
        has, seen = given[argument.arg], argument.annotation
        assert has is not None and seen is not None, f"{handler}: {argument.arg}"
        is_there = handler in {api.handler for api in there.get(argument.arg, {}).values()}
        if ast.unparse(seen) != (type_name(has) if is_there else ast.unparse(has)):
            wrong.append(f"{handler}: {argument.arg}: {ast.unparse(seen)}")
    return wrong


def test_every_part_is_named_by_a_handler_and_seen_as_services_has_it() -> None:
    """That the parts of a broker are what `Services` says is for mypy, where `services()` puts them together."""
    parts = Parts()
    given = parts.types | parts.derived
    assert {argument.arg for _, argument in wishes()} == set(given)
    assert seen_as_another(wishes(), given) == []


@pytest.mark.parametrize(
    ("handler", "planted"),
    [
        ("planted", "metadata: Replicas"),
        ("planted", "controller: BrokersController"),
        ("planted", "brokers_controller: ActiveController"),
        ("planted", "metadata: ClusterMetadata | None"),
        ("planted", "acls: AccessRules"),
        ("planted", "orders: ControllerOrders"),
        ("leader_and_isr", "orders: ControllerOrders | None"),
        ("planted", "fault: Callable[[int], bool]"),
    ],
)
def test_a_part_that_is_seen_as_another_is_found(handler: str, planted: str) -> None:
    parts = Parts()
    tree = ast.parse(f"def handle(ctx, request, *, {planted}): ...")
    assert seen_as_another(wishes([(handler, tree)]), parts.types | parts.derived) == [f"{handler}: {planted}"]


def test_a_port_shows_only_what_somebody_asks_for() -> None:
    """By whoever names the port, or dispatches requests."""
    texts = {path.name: path.read_text() for path in APIS.rglob("*.py") if path.name != "ports.py"}
    asked = {
        name: {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
        for name, text in texts.items()
    }
    parts = Parts()
    for port in {type_name(argument.annotation) for _, argument in wishes()} & parts.ports:
        by = [asked[name] for name, text in texts.items() if name == "kafka_apis.py" or re.search(rf"\b{port}\b", text)]
        assert parts.public_names(parts.classes[port]) <= set().union(*by), port


def assigned(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets with what each is given, also where several are in one line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=False)
                else:
                    yield target, node.value


def parts_held(tree: ast.Module, parts: Parts) -> list[tuple[ast.AST, dict[str, set[str]]]]:
    """Each function with the names that it has for parts, and for each of them the types that it may be of.

    They are its parameters, what a class keeps (in `self`, or as a field), and what either is called by assignment.
    """

    def of(annotation: ast.expr | None) -> set[str]:
        return set(type_name(annotation).split(" | ")) & parts.names

    classes = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
    fields = [node for one in classes for node in one.body if isinstance(node, ast.AnnAssign)]
    kept = {f"self.{ast.unparse(field.target)}": of(field.annotation) for field in fields}
    scopes = [
        (function, {one.arg: of(one.annotation) for one in ast.walk(function.args) if isinstance(one, ast.arg)})
        for function in functions(tree)
    ]
    is_new = True
    while is_new:
        is_new = False
        for function, held in scopes:
            for target, value in assigned(function):
                path = ast.unparse(value)
                found = held.get(path, set()) | kept.get(path, set())
                known = (kept if isinstance(target, ast.Attribute) else held).setdefault(ast.unparse(target), set())
                is_new |= not found <= known
                known |= found
    return [(function, kept | held) for function, held in scopes]


def reached_through(tree: ast.Module, parts: Parts) -> set[str]:
    """What is taken out of a part that is neither data nor a method: `transactions.topic` for one.

    What a method returns is not followed: by design that is data, or what was asked for, as `groups.classic_group(…)`
    gives a `Group` to describe.
    """
    found: set[str] = set()
    for function, held in parts_held(tree, parts):
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                owner = ast.unparse(node.value)
                if not all(parts.is_given(part, node.attr) for part in held.get(owner, ())):
                    found.add(f"{owner.removeprefix('self._')}.{node.attr}")
    return found


def test_handlers_reach_through_no_part() -> None:
    parts = Parts()
    assert {f"{name}: {one}" for name, tree in handlers() for one in reached_through(tree, parts)} == set()


def test_what_is_reached_through_is_seen() -> None:
    planted = """
def handle(ctx, request, *, metadata: ClusterMetadata, mover: LogDirMover | None):
    metadata.brokers.keys(), metadata.endpoint(1, "").host, mover.move(request.path)
    mover.replicas.find("t", 0)

def _helped(mover: LogDirMover, *, either: Replicas | LogDirs | None):
    one, other = mover, either
    one.move(other.failures)
    if again := other:
        one.replicas.find(again.log_manager)

class _Work:
    def run(self):
        kept = self._replicas
        return self._replicas.failures, self._replicas.log_manager, kept.partitions

    def __init__(self, replica_manager: Replicas):
        self._replicas = replica_manager

@dataclass
class _Field:
    replicas: Replicas

    def run(self):
        return self.replicas.failures, self.replicas.purgatory
"""
    assert reached_through(ast.parse(planted), Parts()) == {
        *("mover.replicas", "one.replicas", "other.failures", "again.log_manager"),
        *("replicas.log_manager", "kept.partitions", "self.replicas.purgatory"),
    }


LOG_OWNERS = ("server/replication/", "server/cleaning/")
"""Who knows the logs of partitions: the rooms behind the doors, and who cleans what `LogManager` holds."""


def logs_touched(tree: ast.Module) -> list[str]:
    """Where the log of something is read or taken; what a logger does with lines is something else."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "log" and not ast.unparse(node.value).endswith("logger")
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "server").rglob("*.py")), ids=name_of)
def test_logs_of_partitions_are_touched_behind_the_doors_only(path: Path) -> None:
    """What others want to know of a partition it is asked, or its broker's replica manager."""
    if not name_of(path).startswith(LOG_OWNERS):
        assert logs_touched(ast.parse(path.read_text())) == []


def test_a_touched_log_is_seen() -> None:
    planted = "end = shard.partition.log.log_end_offset\nlog = partition.log\nself._logger.log(level, 'a line')\n"
    assert {one.partition(":")[0] for one in logs_touched(ast.parse(planted))} == {"line 1", "line 2"}


KINDS = "server/coordinator/group/kinds.py"
"""The one file that asks which kind a group is."""
SHOWN_KINDS = {"server/apis/handlers/list_groups.py": {"group.type_name"}}
"""Who lists groups shows which kind each is."""
CLASSES_OF_GROUPS = {"Group", "ConsumerGroup"}


def looks_at_kinds_of_groups(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What asks a group for its kind, with its line: by its class, or by its kind's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_look = node.attr in {"type_name", "__class__"}
        elif isinstance(node, ast.Call) and attribute_path(node.func) == "type":
            is_look = len(node.args) == 1
        elif isinstance(node, ast.Compare | ast.MatchClass) or (
            isinstance(node, ast.Call) and attribute_path(node.func) in {"isinstance", "issubclass", "cast"}
        ):
            names = {attribute_path(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)}
            is_look = not CLASSES_OF_GROUPS.isdisjoint(name.rpartition(".")[2] for name in names)
        else:
            continue
        if is_look:
            yield node.lineno, ast.unparse(node)


def test_which_kind_a_group_is_is_asked_in_one_place() -> None:
    """Everybody else goes through `GroupPort` and `GroupKind`, or asks for a group of the kind that they name.

    Only the rooms that may import the server know its groups.
    """
    asking: dict[str, list[tuple[int, str]]] = {}
    for path in sources():
        name, text = name_of(path), path.read_text()
        if name.startswith(("server/", "simulation/", "testing/")) and "Group" in text:
            looks = looks_at_kinds_of_groups(ast.parse(text))
            if others := [look for look in looks if look[1] not in SHOWN_KINDS.get(name, ())]:
                asking[name] = others
    assert asking.keys() == {KINDS}, asking


@pytest.mark.parametrize(
    "planted",
    [
        "isinstance(group, Group)",
        "isinstance(group, Group | group_module.ConsumerGroup)",
        "type(group) is ConsumerGroup",
        "cast(ConsumerGroup, group)",
        "match group:\n    case ConsumerGroup():\n        pass",
        "group.type_name == kind",
        "group.type_name == ConsumerGroup.type_name",
        "group.type_name in {'classic'}",
        "kind = group.type_name\nif kind == 'classic':\n    pass",
        "HANDLERS[type(group)]",
        "GROUP_TYPES[group.type_name]",
        "type(group).__name__ == 'Group'",
        "group.__class__.__name__ == 'Group'",
    ],
)
def test_looks_at_kinds_of_groups_are_seen(planted: str) -> None:
    assert list(looks_at_kinds_of_groups(ast.parse(planted)))


TURNS = ("server/runtime/turns.py", "clients/turns.py")
"""Who lets others be served: the server with all its budgets, and a client, which may not import the server."""


def slices_by_hand(text: str) -> list[str]:
    """Budgets for a turn of the loop, by the names that they are given, and where work is cut without a helper."""
    names = r"(?m)^_?[A-Z_]*(?:AT_ONCE|AT_A_TIME|A_TURN|PER_TURN|IN_ROUND|IN_A_REQUEST)\b.*= .*\d"
    return re.findall(names, text) + re.findall(r"sleep\(0\)|% \w+ == 0:\s+await .*", text)


@pytest.mark.parametrize("path", list(sources()), ids=name_of)
def test_turns_of_the_loop_are_shared_in_one_place(path: Path) -> None:
    """After how much others are served stands in `server/runtime/turns.py`."""
    name, text = name_of(path), path.read_text()
    if name not in TURNS and not name.startswith("simulation/"):
        budgets = set(re.findall(r"\b([A-Z][A-Z_]+)(?:, \w+)? = ", (ROOT / TURNS[0]).read_text())) | {"1"}
        assert slices_by_hand(text) == []
        assert set(re.findall(r"\bPace\((\w+)\)", text)) <= budgets


@pytest.mark.parametrize(
    "planted",
    [
        "EXPIRED_AT_ONCE = 100",
        "ANSWERS_AT_ONCE, PAUSE_S = 3, 0.001",
        "_COPIED_AT_ONCE = 256 * 1024",
        "CONFIGS_AT_A_TIME = 100",
        "SEGMENTS_PER_TURN = 64",
        "LOGS_A_TURN: Final = 64",
        "await asyncio.sleep(0)",
        "if count % RECORDS == 0:\n    await next_turn()",
    ],
)
def test_slices_by_hand_are_seen(planted: str) -> None:
    assert len(slices_by_hand(f"import asyncio\n{planted}\n")) == 1
