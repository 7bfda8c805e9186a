"""Compare Barnabas, Apache Kafka, the ceiling and the sink in one run, one round of each in turn.

python -m bench                                              everything, three rounds of five seconds
python -m bench produce-1k single-requests --targets barnabas,ceiling --seconds 5 --rounds 3
python -m bench --report a.json b.json --markdown docs/reference/benchmarks.md   tables from earlier runs
python -m bench --list
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.bench import PACED, Bench
from bench.catalogue import BENCHES
from bench.plot import growth_plot, overview_plot
from bench.published import Published, write_markdown
from bench.report import BenchResult, print_result, read_json, write_json
from bench.runner import Plan, run_bench
from bench.warming import MAX_WARMUP_S, MAX_WARMUPS

WARMUP_HELP = (
    "minimum number of warm-up rounds, which do not count; more are run until Kafka's figures stop improving "
    f"(at most {MAX_WARMUPS}, and none begins after {MAX_WARMUP_S:g} seconds); 0 disables the warm-up"
)


def known_targets(text: str) -> list[str]:
    """Parse a comma-separated list of targets."""
    names = text.split(",")
    if unknown := sorted(set(names) - set(PACED)):
        raise argparse.ArgumentTypeError(f"unknown target: {', '.join(unknown)}. Choose from {', '.join(PACED)}")
    return names


def python_target(text: str) -> tuple[str, Path]:
    """Return the name of the target `barnabas-3.14.1`, and the path of its interpreter."""
    # Neither the current folder nor `PYTHONPATH` is searched: the interpreter needs Barnabas among its own packages.
    command = [text, "-I", "-c", "import barnabas, platform; print(platform.python_version())"]
    try:
        version = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise argparse.ArgumentTypeError(f"not an interpreter that has Barnabas installed: {text}") from error
    return f"barnabas-{version}", Path(text)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("benches", nargs="*", metavar="BENCH", help="names from --list (default: all)")
    parser.add_argument("--report", type=Path, nargs="+", metavar="JSON", help="show these results, measure nothing")
    parser.add_argument("--list", action="store_true", help="list all benches and exit")
    parser.add_argument("--targets", default=",".join(PACED), type=known_targets, help="targets, in this order")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one load in seconds")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds that count")
    parser.add_argument("--warmup", type=int, default=1, help=WARMUP_HELP)
    parser.add_argument(
        "--python",
        type=python_target,
        action="append",
        default=[],
        metavar="PATH",
        help="also measure single brokers on this interpreter, which has Barnabas installed; can be repeated",
    )
    parser.add_argument("--folder", type=Path, help="parent of the servers' folders (default: a temporary folder)")
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE", help="set on both brokers")
    parser.add_argument("--json", type=Path, help="write every figure of every round to this file")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file or its marked section")
    parser.add_argument("--plot", type=Path, help="write an SVG chart of the growth benches to this file")
    parser.add_argument("--overview", type=Path, help="write an SVG chart of the ratios in --markdown to this file")
    return parser.parse_args(arguments)


def chosen(names: list[str]) -> list[Bench]:
    """Return the benches with these names, or all benches if there are no names."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"unknown bench: {', '.join(unknown)}. Choose from {', '.join(BENCHES)}")
    return [BENCHES[name] for name in names] if names else list(BENCHES.values())


def measured(options: argparse.Namespace) -> list[BenchResult]:
    """Run the benches one after the other. Each result is printed and written to --json as soon as it is complete."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=options.folder))
    properties = dict(entry.split("=", 1) for entry in options.property)
    plan = Plan(folder, options.seconds, options.rounds, options.warmup, properties, dict(options.python))
    settings = {"seconds": options.seconds, "rounds": options.rounds, "warmup": options.warmup}
    results: list[BenchResult] = []
    try:
        for bench in chosen(options.benches):
            result = run_bench(bench, options.targets, plan)
            if result.rounds:
                print_result(result)
                results.append(result)
            if options.json:
                write_json(options.json, results, settings)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def main() -> None:
    """Run the command."""
    options = parse(sys.argv[1:])
    if options.list:
        for bench in BENCHES.values():
            print(f"{bench.name:22} {bench.about}  [{', '.join(bench.targets)}]")
        return
    for path in (options.json, options.markdown, options.plot, options.overview):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
    if options.report:
        results = read_json(options.report, BENCHES)
        for result in results:
            print_result(result)
    else:
        results = measured(options)
    if options.plot:
        options.plot.write_text(growth_plot(results))
    if options.markdown:
        write_markdown(options.markdown, results, BENCHES)
        if options.overview:
            options.overview.write_text(overview_plot(Published.read(options.markdown.read_text())))


if __name__ == "__main__":
    main()
