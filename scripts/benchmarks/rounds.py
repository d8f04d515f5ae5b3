"""All measurements again and again, one after another, each in a process of its own and with an end."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from .measures import MEASURES
from .single import BARE, CAP_S

SCRIPTS = Path(__file__).resolve().parents[1]


def pairs(measures, peers, size):
    """Return (measure, peer) -> how often, of all that can be measured."""
    names = [
        (name, peer)
        for name in measures
        for peer in [p.name for p in peers if MEASURES[name].needs in p.offers] + [BARE] * bool(MEASURES[name].bare)
    ]
    return {pair: max(1, int(MEASURES[pair[0]].count * size)) for pair in names}


def take(measure, peer, count, workers):
    """Measure once; return its numbers, or a text that says why there are none."""
    path = os.pathsep.join(filter(None, (str(SCRIPTS), str(SCRIPTS.parent), os.environ.get("PYTHONPATH"))))
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.single", measure, peer, str(count), str(workers)],
        env=environ | {"PYTHONPATH": path},  # with bytecode: to compile all modules takes longer than to start a pool
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=CAP_S)
    except subprocess.TimeoutExpired:
        return f"not done after {CAP_S} s"
    finally:
        _end(process)
    lines = out.splitlines()
    if process.returncode or not lines:
        return (err.splitlines() or [f"ended with status {process.returncode}"])[-1]
    return json.loads(lines[-1])


def _end(process):
    """End what is left of a measurement: some pools leave workers behind when they are given up."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()


def rounds(wanted, number, workers, tell=lambda text: None):
    """Take each (measure, peer) of `wanted` so often; they take turns.

    Returns:
        (measure, peer) -> of each round its numbers, or a text where it failed.
    """
    found = {pair: [] for pair in wanted}
    order = list(wanted)
    with contextlib.suppress(KeyboardInterrupt):  # what was measured until then is told
        for turn in range(number):
            for nth in range(len(order)):
                measure, peer = pair = order[(nth + turn) % len(order)]  # nobody always comes first
                tell(f"round {turn + 1} of {number}, {nth + 1} of {len(order)}: {measure}, {peer}")
                found[pair].append(take(measure, peer, wanted[pair], workers))
    return found
