"""Compares servers side by side in one run: Barnabas, Apache Kafka, the ceiling and the sink, round about.

python -m bench                                              everything, three rounds of five seconds
python -m bench produce-1k single-requests --targets barnabas,ceiling --seconds 5 --rounds 3
python -m bench --report a.json b.json --markdown docs/reference/benchmarks.md   tables from runs made before
python -m bench --list
"""

import argparse
import shutil
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

AT_LEAST = (
    "rounds before them that do not count: so many at least, and more until Kafka's figures stop getting better "
    f"(at most {MAX_WARMUPS}, and none begins after {MAX_WARMUP_S:g} seconds); 0 for none at all"
)


def known_targets(text: str) -> list[str]:
    """The targets that a comma-separated list names."""
    names = text.split(",")
    if unknown := sorted(set(names) - set(PACED)):
        raise argparse.ArgumentTypeError(f"no such target: {', '.join(unknown)}; there are: {', '.join(PACED)}")
    return names


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("benches", nargs="*", metavar="BENCH", help="names from --list; all when none is given")
    parser.add_argument("--report", type=Path, nargs="+", metavar="JSON", help="measure nothing, show these runs")
    parser.add_argument("--list", action="store_true", help="name every bench and stop")
    parser.add_argument("--targets", default=",".join(PACED), type=known_targets, help="which servers, in this order")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one load")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, A B C A B C")
    parser.add_argument("--warmup", type=int, default=1, help=AT_LEAST)
    parser.add_argument("--folder", type=Path, help="where the servers keep their files (default: a temporary folder)")
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE", help="given to both brokers")
    parser.add_argument("--json", type=Path, help="write every figure of every round here")
    parser.add_argument("--markdown", type=Path, help="write the tables here, or into the place for them")
    parser.add_argument("--plot", type=Path, help="write the growth benches as an SVG plot here")
    parser.add_argument("--overview", type=Path, help="write the chart of the ratios in --markdown as SVG here")
    return parser.parse_args(arguments)


def chosen(names: list[str]) -> list[Bench]:
    """The benches of these names, all of them for no name."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"no such bench: {', '.join(unknown)}; there are: {', '.join(BENCHES)}")
    return [BENCHES[name] for name in names] if names else list(BENCHES.values())


def measured(options: argparse.Namespace) -> list[BenchResult]:
    """Run the benches one after the other; each is shown, and written to --json, as soon as it is done."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=options.folder))
    properties = dict(entry.split("=", 1) for entry in options.property)
    plan = Plan(folder, options.seconds, options.rounds, options.warmup, properties)
    asked = {"seconds": options.seconds, "rounds": options.rounds, "warmup": options.warmup}
    results: list[BenchResult] = []
    try:
        for bench in chosen(options.benches):
            result = run_bench(bench, options.targets, plan)
            if result.rounds:
                print_result(result)
                results.append(result)
            if options.json:
                write_json(options.json, results, asked)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def main() -> None:
    """Run what was asked for and show it."""
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
