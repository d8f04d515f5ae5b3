"""Compare ptss_mp with the process pools that are installed here.

    python scripts/bench.py                            all measurements, five rounds
    python scripts/bench.py --metrics noop,roundtrip   these alone
    python scripts/bench.py --prices                   what each guarantee of ptss_mp costs
    pip install '.[bench]'                             the other pools

Each measurement is made in a process of its own, one after another; in each round all take a turn, so that what else
the machine does hits all alike.  Told are medians over the rounds.  Trust ratios more than numbers, and neither on a
machine that is busy with something else.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import signal
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.measures import MEASURES
from benchmarks.peers import OURS, PEERS
from benchmarks.prices import PRICES, SHARES
from benchmarks.rounds import pairs, rounds


def arguments():
    names = ", ".join(MEASURES)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"metrics: {names}\npeers: {', '.join(PEERS)}",
    )  # fmt: skip
    parser.add_argument("--metrics", type=listed(MEASURES), default=list(MEASURES), help="a,b,c (default: all)")
    parser.add_argument("--peers", type=listed(PEERS), default=list(PEERS), help="a,b,c (default: all that are there)")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement (default: 5)")
    parser.add_argument("--workers", type=int, default=2, help="of each pool (default: 2)")
    parser.add_argument("--size", type=float, default=1.0, help="share of the jobs of each measurement (default: 1)")
    parser.add_argument("--prices", action="store_true", help="compare ptss_mp with itself under other options")
    parser.add_argument("--markdown", action="store_true", help="print a table in Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers of all rounds there")
    args = parser.parse_args()
    if args.rounds < 1 or args.workers < 1 or not 0 < args.size <= 1:
        parser.error("--rounds and --workers are at least 1, --size is above 0 and at most 1")
    return args


def listed(known):
    """Return what reads a list of names, whatever their case."""
    names = {name.lower(): name for name in known}

    def read(text):
        unknown = [name for name in text.split(",") if name.strip().lower() not in names]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return [names[name.strip().lower()] for name in text.split(",")]

    return read


def machine():
    """Say where this was measured."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {model}, Linux {platform.release()}, Python {platform.python_version()}"


def least(found):
    """Return how many rounds there were of each measurement at least; whoever interrupts them has fewer."""
    return min(map(len, found.values()))


def versions(found):
    """Name the versions of what is not the standard library's, nor ours."""
    peers = [PEERS[name] for name in dict.fromkeys(peer for _, peer in found) if name in PEERS and PEERS[name].install]
    return "".join(f", {peer.name} {importlib.metadata.version(peer.install.split()[-1])}" for peer in peers)


def progress(text):
    """Show on a terminal what is being measured."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def there(names):
    """Return the peers that are installed; name those that are not."""
    peers = []
    for peer in (PEERS[name] for name in dict.fromkeys([OURS, *names])):
        if peer.installed():
            peers.append(peer)
        else:
            print(f"{peer.name} is not installed and stays out: {peer.install}", file=sys.stderr)
    return peers


def measurable(names):
    """Return the measures whose modules are installed; name those that stay out."""
    if importlib.util.find_spec("numpy"):
        return names
    for name in names:
        if MEASURES[name].numpy:
            print(f"{name} needs numpy and stays out: pip install numpy", file=sys.stderr)
    return [name for name in names if not MEASURES[name].numpy]


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was measured until then is told
    if args.prices:
        wanted = {("noop", name): max(1, int(20_000 * args.size * SHARES.get(name, 1))) for name in PRICES}
    else:
        wanted = pairs(measurable(args.metrics), there(args.peers), args.size)
    found = rounds(wanted, args.rounds, args.workers, progress)
    progress("")
    print(f"{machine()}; {args.workers} workers, medians of {least(found)} rounds{versions(found)}")
    if args.prices:
        print(report.prices(found, args.markdown))
    else:
        print(report.markdown(found) if args.markdown else report.text(found))
    for line in report.failures(found):
        print(f"failed: {line}", file=sys.stderr)
    if args.json:
        rows = [
            {"measure": measure, "peer": peer, "count": wanted[measure, peer], "rounds": samples}
            for (measure, peer), samples in found.items()
        ]
        args.json.write_text(json.dumps({"machine": machine(), "workers": args.workers, "measured": rows}, indent=1))


if __name__ == "__main__":
    main()
