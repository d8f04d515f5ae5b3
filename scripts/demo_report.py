"""Compare a report of examples/hostile/jobs.py with what its zoo should have come to.

    python scripts/demo_report.py REPORT.json JOBS.py
"""

import ast
import json
import sys


def expected(jobs_file):
    """Return EXPECTED of the jobs file, read without running it."""
    with open(jobs_file, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "EXPECTED":
            return ast.literal_eval(node.value)
    raise SystemExit(f"{jobs_file} has no EXPECTED")


def seen(job):
    """Return an outcome in the words of EXPECTED."""
    cause = job["signal_name"] if job["signal_name"] else job["exit_code"]
    return job["status"], cause if job["status"] == "crashed" else None


def main(report, jobs_file):
    with open(report, encoding="utf-8") as file:
        jobs = {job["name"]: job for job in json.load(file)["jobs"]}
    wanted = expected(jobs_file)
    wrong = 0
    for name, right in wanted.items():
        found = seen(jobs[name]) if name in jobs else ("absent", None)
        wrong += found != right
        told = " ".join(str(part) for part in found if part is not None)
        print(f"  {'ok   ' if found == right else 'WRONG'} {name}: {told}", file=sys.stderr)
    honest = [job for name, job in jobs.items() if name not in wanted and not name.startswith("crasher_")]
    good = sum(job["ok"] for job in honest)
    print(f"  {good} of {len(honest)} honest jobs succeeded; {wrong} of the zoo went wrong", file=sys.stderr)
    for name, job in sorted(jobs.items()):
        if name.startswith("crasher_"):
            print(f"  seen  {name}: {job['status']}: {job['error']}"[:110], file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
