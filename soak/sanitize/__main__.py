"""Run tests and a mutation fuzzer on compiled code built with AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m soak.sanitize --minutes 10

The checkout and its uncommitted changes are copied to `build/sanitize`, so that the installed extension is not
replaced. The exit status is the status of the first command that fails. Requires Linux, and gcc or clang with their
sanitizer runtimes.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys

from tests.foreign_tools import CHECKOUT

COPY = CHECKOUT / "build" / "sanitize"
FLAGS = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined"
TESTS = (
    "tests/protocol",
    "tests/storage",
    "tests/hostile/test_damaged_batches.py",
    "tests/server/network/test_response_batcher.py",
    "tests/server/apis/test_joint_produce.py",
    "tests/server/runtime/test_syncer.py",
    "tests/server/metrics/test_call_watch.py",
)
SLOWER = 4
"""The factor by which test timeouts are longer than without sanitizers."""


def copy_checkout() -> None:
    """Copy the files that are tracked by git or not ignored. Copy symbolic links as links."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        source, target = CHECKOUT / name, COPY / name
        if source.exists() or source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def compile_sanitized() -> None:
    """Build the extension next to its stub in the copy. Raises CalledProcessError if the build fails."""
    build = (
        "import sys; from pathlib import Path; import hatch_build as b;"
        "sys.exit(not b.compile_extension(Path(b.SOURCES), Path('protocol') / f'_speedups{b.SUFFIX}', strict=True))"
    )
    environment = {**os.environ, "CFLAGS": FLAGS}
    subprocess.run([sys.executable, "-c", build], cwd=COPY, env=environment, check=True)


def sanitized_environment() -> dict[str, str]:
    """Return the environment in which Python loads the extension and exits at the first sanitizer error."""
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    runtimes = [
        subprocess.run(
            [*compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(runtimes),
        # CPython keeps objects until the process ends, and LeakSanitizer would report these objects.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # Python's allocator takes bytes objects from arenas. The sanitizers do not detect overflows within an arena.
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join((str(COPY / ".src"), str(COPY))),
        "BARNABAS_CACHE": str(CHECKOUT / ".cache"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="minutes of the mutation fuzz (default: 10)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first mutation (default: 0)")
    parser.add_argument("--fuzz-only", action="store_true", help="skip the tests")
    arguments = parser.parse_args()
    copy_checkout()
    compile_sanitized()
    environment = sanitized_environment()
    fuzz = [sys.executable, "-m", "soak.sanitize.mutation_fuzz"]
    commands = [[*fuzz, "--minutes", str(arguments.minutes), "--first", str(arguments.first)]]
    if not arguments.fuzz_only:
        tests = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", "not verify", *TESTS]
        # These tests measure memory and time, which the sanitizers change.
        commands.append([*tests, "-o", f"timeout={120 * SLOWER}", "-k", "not bombs and not memory"])
    for command in commands:
        done = subprocess.run(command, cwd=COPY, env=environment, check=False)
        if done.returncode != 0:
            sys.exit(done.returncode)


if __name__ == "__main__":
    main()
