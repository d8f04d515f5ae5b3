"""Kills from outside while ten thousand jobs run: who is blamed, what is lost, what runs twice.

    python scripts/measure/chaos.py [jobs] [kills of workers] [kills of wardens] [seed]

This process shoots workers at random, every other one while it has told the begin of a job and no end yet, and
wardens.  What ran where and when is known from a log that the jobs write; odd jobs have two retries, even ones none.

Checked: each job has exactly one outcome; whoever is blamed ran in a process that was shot, or was sent there and had
not told its begin yet; no job began twice but those with retries, and each time but the last in a process that was
shot while it ran there.
"""

import collections
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jobs
from common import children, kill, load, run

RETRIES = 2


# ---- the product's side


def pool(count, log):
    """Run all jobs; write a line per outcome: number, status, attempts, pid of its worker, how often it was settled."""
    from ptss_mp import Executor

    settled = collections.Counter()
    with Executor(max_workers=4, preload=["jobs"]) as ex:
        ex.submit(os.getpid).result()
        print("ready", flush=True)
        views = ex, ex.options(retries=RETRIES)
        futures = []
        for i in range(int(count)):
            futures.append(views[i % 2].submit(jobs.logged, log, i, i % 3 * 0.01))
            futures[-1].add_done_callback(lambda _, i=i: settled.update([i]))
        for future in futures:
            future.outcome()
        ex.drain(60)
        with open(log + ".ends", "w", encoding="utf-8") as file:
            for i, future in enumerate(futures):
                outcome = future.outcome()
                print(i, outcome.status.value, outcome.attempts, outcome.worker_pid, settled[i], file=file)
        error = next((str(f.exception()) for f in futures if "pool cannot go on" in str(f.exception())), "")
        print(error, flush=True)


# ---- the measurement


class Killer:
    """Reads the log of the jobs, and shoots."""

    def __init__(self, log, seed):
        self.log, self.offset = log, 0
        self.random = random.Random(seed)
        self.running = {}  # pid -> the job that told its begin there, and no end
        self.ran = collections.defaultdict(list)  # job -> pids in which it began
        self.ended = collections.Counter()
        self.shot = {}  # pid -> was it busy
        self.wardens = 0

    def read(self):
        """Take in what the jobs have told since."""
        with open(self.log, "rb") as file:
            file.seek(self.offset)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self.offset += len(data)
        for line in data.decode().splitlines():
            what, job, pid = line.split()
            if what == "begin":
                self.running[int(pid)] = int(job)
                self.ran[int(job)].append(int(pid))
            else:
                self.running.pop(int(pid), None)
                self.ended[int(job)] += 1

    def workers(self):
        """Return (warden, its children): the program's only child is the warden."""
        warden = next(iter(children(self.program)), 0)
        return warden, children(warden) if warden else []

    def shoot_worker(self, busy):
        """Kill one; return False if there was none of that kind."""
        self.read()
        alive = [pid for pid in self.workers()[1] if pid not in self.shot]
        wanted = [pid for pid in alive if pid in self.running] if busy else alive
        if not wanted:
            return False
        pid = self.random.choice(wanted)
        if not kill(pid):
            return False
        self.shot[pid] = pid in self.running
        return True

    def shoot_warden(self):
        """Kill the warden, and with it all its workers."""
        self.read()
        warden, workers = self.workers()
        if not workers or not kill(warden):
            return False
        self.wardens += 1
        self.shot.update((pid, pid in self.running) for pid in workers)
        return True


def rounds(killer, process, count, workers, wardens):
    """Shoot at even distances of the jobs begun, until all shots are fired or the jobs are done."""
    order = ["worker"] * workers + ["warden"] * wardens
    killer.random.shuffle(order)
    begun = 0
    for number, what in enumerate(order):
        at = (number + killer.random.random()) * count * 0.95 / len(order)
        while begun < at and process.poll() is None:
            killer.read()
            begun = len(killer.ran)
            time.sleep(0.0005)
        while process.poll() is None:
            if killer.shoot_warden() if what == "warden" else killer.shoot_worker(busy=number % 4 > 0):
                break


def judge(killer, rows, count):
    """Return what is wrong, in words."""
    wrong = []
    if len(rows) != count:
        wrong.append(f"{count - len(rows)} jobs without an outcome")
    for job, status, attempts, pid, settled in rows:
        ran, tries = killer.ran[job], RETRIES if job % 2 else 0
        if settled != 1:
            wrong.append(f"job {job} was settled {settled} times")
        if status not in ("succeeded", "crashed"):
            wrong.append(f"job {job}: {status}")
        if status == "crashed" and pid not in killer.shot:
            wrong.append(f"job {job} is blamed for the end of {pid}, which nobody shot")
        # shot behind its last line and before its answer stood, it still ran, and had to be made again
        if status == "succeeded" and (not ran or ran[-1] != pid or not 1 <= killer.ended[job] <= len(ran)):
            wrong.append(f"job {job} succeeded in {pid}; it began in {ran} and ended {killer.ended[job]} times")
        if len(ran) > 1 + tries or len(ran) > attempts:
            wrong.append(f"job {job} began in {ran}: {attempts} attempts, {tries} retries")
        if [before for before in ran[:-1] if before not in killer.shot]:
            wrong.append(f"job {job} began again, and {ran} were not all shot")
    return wrong


def main(argv):
    if argv[:1] == ["pool"]:
        return pool(*argv[1:])
    count, workers, wardens, seed = *map(int, argv), *(10_000, 300, 10, 1)[len(argv) :]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "log")
        Path(log).touch()
        killer = Killer(log, seed)
        process = run(__file__, count, log, stdout=subprocess.PIPE, text=True)
        killer.program = process.pid
        process.stdout.readline()
        rounds(killer, process, count, workers, wardens)
        print(process.communicate(timeout=300)[0].strip() or "the pool lived")
        told = [line.split() for line in Path(log + ".ends").read_text().splitlines()]
        killer.read()
    rows = [(int(a), b, int(c), int(d) if d.isdigit() else 0, int(e)) for a, b, c, d, e in told]
    wrong = judge(killer, rows, count)
    ends = collections.Counter(row[1] for row in rows)
    again = sum(1 for ran in killer.ran.values() if len(ran) > 1)
    print(
        f"{count} jobs, {len(killer.shot)} workers shot or lost with {killer.wardens} wardens, "
        f"{sum(killer.shot.values())} of them busy ({load()}, {time.monotonic() - began:.0f} s)"
    )
    print(f"  {dict(ends)}; begun more than once, all with retries: {again}; wrong: {len(wrong)}")
    for line in wrong[:20]:
        print(f"  {line}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
