"""Run before.py and after.py, which differ in one import line; show side by side what each came to.

    python examples/drop_in/compare.py
"""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ARTICLES = 2_000


def measure(program):
    """Run a program; return its facts in words, in the order of the table's rows."""
    began = time.perf_counter()
    run = subprocess.run([sys.executable, HERE / program], capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    lost = {}
    priced = 0
    for line in run.stdout.splitlines():
        item, _, said = line.partition(" ")
        if said.startswith("crashed: "):
            lost[int(item)] = said.removeprefix("crashed: ")
        elif item.isdecimal():  # else it is the rest of what an error says: the stack
            priced += 1
    why = Counter(lost.values()).most_common(1)
    return {
        "exit status": str(run.returncode),
        "articles priced": str(priced),
        "articles lost": str(ARTICLES - priced),
        "told to be lost": f"article {min(lost)}" if len(lost) == 1 else f"{len(lost)} articles",
        "seconds": f"{took:.2f}",
        "ms per price": f"{1000 * took / priced:.2f}" if priced else "-",
        "said": why[0][0] if why else (run.stderr.strip().splitlines() or [""])[-1],
    }


def main():
    before, after = measure("before.py"), measure("after.py")
    print(f"{'':<16}{'before.py':>20}{'after.py':>20}")
    for row in before:
        if row != "said":
            print(f"{row:<16}{before[row]:>20}{after[row]:>20}")
    print(f"\nbefore.py said: {before['said']}\nafter.py said: {after['said']}")


if __name__ == "__main__":
    main()
