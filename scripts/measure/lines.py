"""`ptss-mp map` over a million lines: the program's memory, and what a Ctrl-C and `--resume` leave of them.

    python scripts/measure/lines.py plain|journal [--lines 1000000] [--seed 0]

With a journal it is interrupted at a random moment, and resumed to the end.  Asked for: memory that is as flat at the
last line as at the first hundred thousand; each line run once, and told once by the last run.  Takes ten to twenty
minutes each on two cores, and a GB in the current folder for the journal.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, load

CAP_S = 3_600


def rss_mib(pid):
    """Return (resident now, its peak) of a process."""
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(facts[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))


def run(folder, lines, *args, interrupt_at=None):
    """Run to the end; return (status, how often each line succeeded in this run, how often one was told)."""
    command = [sys.executable, "-m", "ptss_mp", "map", "builtins:len", "--from-file", "list", "--no-progress", *args]
    ran, told, count, began = bytearray(lines), bytearray(lines), 0, time.monotonic()
    step = max(1, lines // 10)
    with subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as program:
        try:
            for line in program.stdout:
                found = json.loads(line)
                told[int(found["item"])] += 1
                ran[int(found["item"])] += found["ok"] and not found["resumed"]
                count += 1
                if count in (step, lines // 2, lines):
                    now, peak = rss_mib(program.pid)
                    print(f"  {count:9,} lines: {now:6.1f} MiB, peak {peak:6.1f}", flush=True)
                if count == interrupt_at:
                    program.send_signal(signal.SIGINT)
                assert time.monotonic() - began < CAP_S
            status = program.wait(60)
        finally:
            program.kill()
    took = time.monotonic() - began
    print(f"  status {status}, {count:,} told, {sum(ran):,} run, {took:.0f} s, {count / took:,.0f} lines/s ({load()})")
    return status, ran, told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("plain", "journal"))
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    lines, whole = args.lines, b"\1" * args.lines
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        (Path(folder) / "list").write_text("".join(f"{number}\n" for number in range(lines)))
        if args.what == "plain":
            assert run(folder, lines) == (0, whole, whole)
            return
        at = random.Random(args.seed).randrange(lines // 10, lines * 9 // 10)
        print(f"Ctrl-C behind line {at:,}")
        status, first, _ = run(folder, lines, "--journal", "j.db", interrupt_at=at)
        assert status == 130
        print("resumed")
        status, second, told = run(folder, lines, "--journal", "j.db", "--resume")
        assert (status, told) == (0, whole)
        assert bytes(map(sum, zip(first, second, strict=True))) == whole, "each line was run once"
        print(f"  journal: {(Path(folder) / 'j.db').stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
