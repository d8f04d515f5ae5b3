"""`failures`, `history` and `explain` of journals that runs have written, not of any that a test has made."""

from __future__ import annotations

import json
import re

from tests.cli.cli_support import finish, jobs_file, ptss_mp, start

SOURCE = """
from ptss_mp import Retry
@task
def load(): return [1]
@task
def bad(load):
    print("last word", file=sys.stderr)
    raise ValueError("no")
@task
def below(bad): pass
@task(run_if="failure")
def alarm(load): pass
@task(retries=Retry(crash=2, backoff=0.01))
def crash(): os.kill(os.getpid(), signal.SIGKILL)
@task(timeout="200ms")
def slow(): time.sleep(60)
@task(memory="100MiB")
def big(): held = bytearray(300 << 20); time.sleep(60)
pages = task().map(float, ["1", "x", "x"])
@task(interval="100ms", max_runs=2)
def tick(): pass
@task
def report(tick): raise RuntimeError("no disk")
"""
NUMBERS = (r"\d+\.\d+ s|\d+\.\d MiB|pid \d+", "_")


def told(ended) -> list[str]:
    return [re.sub(*NUMBERS, line) for line in ended.out.splitlines()]


def test_of_a_jobs_file(tmp_path):
    """Each job is told from its likes."""
    jobs_file(tmp_path, SOURCE)
    assert ptss_mp("run", "jobs.py", "--journal", "j.db", "--no-progress", "--workers", "2", cwd=tmp_path).status == 1
    failures = ptss_mp("failures", "j.db", cwd=tmp_path)
    assert failures.status == 1
    lines = sorted(told(failures))
    bad, below, big, crash, page, same, first, second, slow = lines
    assert re.fullmatch(
        r"bad: failed: ValueError: no \| at jobs\.py:10 in bad \| _ \| < 1 MiB \| stderr: last word", bad
    )
    assert below == "below: dependency: 'bad' did not succeed: ValueError: no"
    assert big.startswith("big: memory: held _, allowed are _ (memory); it was killed")
    assert crash.startswith("crash: crashed (SIGKILL)")
    assert crash.endswith("| 3 attempts")
    assert page.startswith("pages[1]: failed: ValueError: could not convert")
    assert same.startswith("pages[2]#2: failed: "), "equal arguments: number two of its key"
    assert all(
        re.match(r"report@\d{4}-\d\d-\d\dT\S+Z: failed: RuntimeError: no disk", line) for line in (first, second)
    )
    assert first.partition(": ")[0] != second.partition(": ")[0], "each release by its instant"
    assert slow.startswith("slow: timeout: ran _, allowed are _ (timeout)")
    assert failures.lines == ["j.db: 9 jobs failed"]

    history = ptss_mp("history", "j.db", cwd=tmp_path)
    assert history.lines[0].startswith("j.db: 14 jobs: ")
    assert len(told(history)) == 15, "and a line for the run"
    story = ptss_mp("explain", "j.db", "crash", cwd=tmp_path).out
    assert "crashed after 3 attempts\n" in story
    assert "peak < 1 MiB" in story
    assert re.search(r"limit 100\.0 MiB, observed \d+\.\d MiB", ptss_mp("explain", "j.db", "big", cwd=tmp_path).out)
    assert "limit 0.200 s, observed 0.2" in ptss_mp("explain", "j.db", "slow", cwd=tmp_path).out
    assert "failed after 1 attempt\n" in ptss_mp("explain", "j.db", "bad", cwd=tmp_path).out
    assert len(re.findall(r"^  key jobs\.report:", ptss_mp("explain", "j.db", "report", cwd=tmp_path).out, re.M)) == 2


def test_of_a_map(tmp_path):
    (tmp_path / "m.py").write_text("def half(item): return 1 / int(item)\n")
    assert ptss_mp("map", "m:half", "--journal", "j.db", "1", "0", "a b", "0", cwd=tmp_path).status == 1
    lines = sorted(line.partition(": ")[0] for line in told(ptss_mp("failures", "j.db", cwd=tmp_path)))
    assert lines == ["half 0", "half 0#2", "half a b"]
    story = ptss_mp("explain", "j.db", "a b", cwd=tmp_path)
    assert (story.status, "of m:half on" in story.out) == (0, True), story


def test_of_a_run_that_was_killed_and_taken_up_and_killed_again(tmp_path, bell):
    """A failure stays one while the job is only accepted once more."""
    source = f"""
@task
def bad():
    if os.path.exists("again"):
        {bell.ring("in it")}
        time.sleep(60)
    raise ValueError("no")
@task
def below(bad): pass
"""
    jobs_file(tmp_path, source)
    assert ptss_mp("run", "jobs.py", "--journal", "j.db", cwd=tmp_path).status == 1
    (tmp_path / "again").touch()
    with start("run", "jobs.py", "--journal", "j.db", "--resume-failed", cwd=tmp_path) as program:
        bell.wait()
        live = ptss_mp("failures", "j.db", cwd=tmp_path)
        program.kill()
        finish(program)
    killed = ptss_mp("failures", "j.db", cwd=tmp_path)
    for ended in (live, killed):
        assert (ended.status, [line.partition(":")[0] for line in ended.out.splitlines()]) == (1, ["bad", "below"])
    history = [json.loads(line) for line in ptss_mp("history", "--json", "j.db", cwd=tmp_path).out.splitlines()]
    assert {(job["run"], job["name"]) for job in history if job["status"] is None} <= {(2, "bad"), (2, "below")}
    assert "(its end is not noted: it runs, or was killed)" in ptss_mp("history", "j.db", cwd=tmp_path).out
