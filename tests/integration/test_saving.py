"""`stop(save=path)`: what did not run is in a file, whole or not at all."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import threading
from itertools import repeat
from pathlib import Path

import deeds
import pytest
from support import CAP_S, until, wait_for_lines, within

from ptss_mp import InvalidOption, InvalidType, JournalError, Retry, Status, task

REPOSITORY = Path(__file__).parents[2]
# A small disk of its own, for the program alone.
ON_A_SMALL_DISK = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=16k none "$0" && exec "$@"']


def saved(path):
    data = json.loads(Path(path).read_text())
    assert data["schema"] == 1
    assert data["left"] == len(data["jobs"])
    return data


def test_what_did_not_run_can_be_run_again_by_what_the_file_says(pool, gate, tmp_path):
    ex = pool(1, name="night")
    done = ex.submit(deeds.double, 1)
    assert done.result(CAP_S) == 2
    view = ex.options(timeout="1h30m", memory="2GiB", retries=Retry(crash=2), deadline=datetime.timedelta(hours=5))
    runs = view.submit(deeds.gate, gate.path)
    until(lambda: ex._pool._began(runs), "its beginning; what was only sent would be cancelled")
    plain = view.options(name="plain", priority=3).submit(deeds.add, 1, y="ö")
    numbers = ex.submit(deeds.add, 1, 2.5)
    fed = ex.options(after=[runs, "plain"], run_if="done").submit(deeds.add, runs, Path("a.pdf"))
    start = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    later = ex.options(start_time=start).submit(task(name="tomorrow", args=(7,))(deeds.double))
    mine = ex.submit(deeds.double, 5)
    assert mine.cancel(), "the program's own wish, and no affair of the stop"
    within(CAP_S, lambda: ex.stop(0, save=tmp_path / "left.json"))

    assert runs.outcome().status is Status.INTERRUPTED
    data = saved(tmp_path / "left.json")
    assert (data["pool"], data["left"]) == ("night", 5)
    jobs = {job["name"]: job for job in data["jobs"]}
    assert set(jobs) == {"gate", "plain", "add", "tomorrow"}
    assert {job["status"] for job in jobs.values()} == {"cancelled", "interrupted"}
    gated = jobs["gate"]
    assert gated["status"] == "interrupted"
    assert gated["call"] == f"gate({gate.path!r})"
    assert gated["args"] == [gate.path]
    assert gated["options"]["timeout"] == "1h30m"
    assert gated["options"]["memory"] == "2GiB"
    assert gated["options"]["retries"]["crash"] == 2
    assert gated["options"]["deadline"] == 5 * 3600.0
    assert gated["key"] == "deeds.gate"
    parse = datetime.datetime.fromisoformat
    assert parse(gated["deadline"]) - parse(gated["start"]) == datetime.timedelta(hours=5)
    assert parse(gated["submitted"]) == runs.outcome().submitted
    assert jobs["plain"]["call"] == "plain(1, y='ö')"
    assert jobs["plain"]["options"]["priority"] == 3
    assert abs(parse(jobs["tomorrow"]["start"]) - start) < datetime.timedelta(seconds=1)
    assert jobs["tomorrow"]["call"] == "tomorrow(7)"
    adds = {job["number"]: job for job in data["jobs"] if job["name"] == "add"}
    assert adds[numbers._id]["args"] == [1, 2.5]
    assert adds[fed._id]["call"] == f"add(<result of 'gate'>, {type(Path()).__module__}.PosixPath('a.pdf'))"
    assert adds[fed._id]["after"] == ["gate", "plain"]
    assert adds[fed._id]["options"]["run_if"] == "done"
    assert {plain.outcome().status, numbers.outcome().status, later.outcome().status} == {Status.CANCELLED}


def test_what_ends_within_the_grace_has_run(pool, gate, tmp_path):
    ex = pool(1)
    runs = ex.submit(deeds.gate, gate.path)
    until(lambda: ex._pool._began(runs), "its beginning")
    waits = [ex.submit(deeds.double, i) for i in range(500)]
    stopper = threading.Thread(target=ex.stop, args=(CAP_S,), kwargs={"save": tmp_path / "left.json"})
    stopper.start()
    until(lambda: waits[-1].done(), "the cancels")
    assert not (tmp_path / "left.json").exists(), "something still runs"
    gate.open()
    stopper.join(CAP_S)
    assert runs.outcome().ok
    assert [job["args"] for job in saved(tmp_path / "left.json")["jobs"]] == [[i] for i in range(500)]


def test_a_job_in_the_pause_before_its_retry_is_left_too(pool, tmp_path):
    ex = pool(1)
    job = ex.options(retries=Retry(exception=3, backoff=60.0)).submit(divmod, 1, 0)
    until(lambda: ex.metrics()["retries_total"] == 1, "its first failure")
    within(CAP_S, lambda: ex.stop(save=tmp_path / "left.json"))
    assert job.outcome().status is Status.CANCELLED
    assert [(job["call"], job["attempts"]) for job in saved(tmp_path / "left.json")["jobs"]] == [("divmod(1, 0)", 1)]


def test_chunks_tell_how_many_items_are_left(pool, tmp_path):
    ex, log = pool(1), tmp_path / "log"
    assert ex.submit(deeds.hangs_at, 1, 600, str(log)).result(CAP_S) == 1  # a worker is there
    values = ex.map(deeds.hangs_at, range(2_000), repeat(600), repeat(str(log)), chunksize=50)
    wait_for_lines(log, 1)
    within(CAP_S, lambda: ex.stop(0, save=tmp_path / "left.json"))
    first, *others = saved(tmp_path / "left.json")["jobs"]
    assert (first["status"], first["call"]) == ("interrupted", f"hangs_at(... {first['items']} items)")
    assert {job["status"] for job in others} == {"cancelled"}
    assert 1_350 <= first["items"] + sum(job["items"] for job in others) <= 1_450, "600 were done"
    del values


def test_nothing_left_is_said_too(pool, tmp_path):
    ex = pool(1)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    within(CAP_S, lambda: ex.stop(save=str(tmp_path / "left.json")))
    assert saved(tmp_path / "left.json")["jobs"] == []
    within(CAP_S, lambda: ex.stop(save=tmp_path / "again.json"))
    assert os.listdir(tmp_path) == ["left.json"], "of a pool that has ended there is nothing to save"


def test_a_pool_that_never_started(pool, tmp_path):
    ex = pool(1)
    ex.stop(save=os.fsencode(tmp_path / "left.json"))
    assert saved(tmp_path / "left.json")["jobs"] == []


@pytest.mark.parametrize(
    ("path", "error", "told"),
    [
        ("no/such/folder/f", InvalidOption, "No such file or directory; nothing was stopped"),
        (".", InvalidOption, "something else is there"),
        ("/dev/null", InvalidOption, "something else is there"),
        ("a\0b", InvalidOption, "embedded null"),
        ("x" * 300, InvalidOption, "File name too long"),
        (7.5, InvalidType, "save takes the path of a file, not float"),
    ],
)
def test_a_path_that_cannot_be_is_refused_before_anything_is_stopped(pool, tmp_path, monkeypatch, path, error, told):
    monkeypatch.chdir(tmp_path)
    ex = pool(1).start()
    with pytest.raises(error, match=told):
        ex.stop(save=path)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    assert os.listdir(tmp_path) == []


def test_from_a_done_callback_and_a_signal_handler(pool, tmp_path):
    ex = pool(1)
    waits = ex.options(start_time="1h").submit(deeds.double, 9)
    ex.submit(deeds.double, 1).add_done_callback(lambda _: ex.stop(save=tmp_path / "callback"))
    until((tmp_path / "callback").exists, "the file")
    assert [job["args"] for job in saved(tmp_path / "callback")["jobs"]] == [[9]]
    assert waits.cancelled()

    other = pool(1)
    waits = other.options(start_time="1h").submit(deeds.double, 8)
    before = signal.signal(signal.SIGUSR1, lambda *_: other.stop(save=tmp_path / "handler"))
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    until((tmp_path / "handler").exists, "the file")
    assert [job["args"] for job in saved(tmp_path / "handler")["jobs"]] == [[8]]


PROGRAM = """
import json, logging, os, sys
from ptss_mp import Executor, JournalError
if __name__ == "__main__":
    logging.basicConfig()
    path = os.path.join(sys.argv[1], "left.json")
    with open(path, "w") as file:
        file.write("before")
    ex = Executor(max_workers=1)
    ex.pause()
    jobs = [ex.submit(pow, 2, i) for i in range(1000)]
    try:
        ex.stop(save=path)
    except JournalError as error:
        print(json.dumps([str(error), isinstance(error, OSError), os.listdir(sys.argv[1]), open(path).read()]))
        print(all(job.cancelled() for job in jobs), ex.state)
"""


def test_a_full_disk_leaves_what_was_there(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    if subprocess.run([*ON_A_SMALL_DISK, disk, "true"], capture_output=True, check=False, timeout=CAP_S).returncode:
        pytest.skip("no mount namespace to be had here (unshare -m): the disk would be everybody's")
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run(
        [*ON_A_SMALL_DISK, disk, sys.executable, tmp_path / "program.py", disk],
        capture_output=True, text=True, env=env, timeout=CAP_S, check=False,
    )  # fmt: skip
    told, all_cancelled = run.stdout.splitlines()
    text = f"what the stopped pool has left cannot be written to '{disk}/left.json': No space left on device"
    assert json.loads(told) == [text, True, ["left.json"], "before"]
    assert all_cancelled == "True stopped"
    assert run.stderr == f"ERROR:ptss_mp:{text}\n"


def test_the_error_is_of_the_tree():
    assert issubclass(JournalError, OSError)


def test_numbers_of_more_digits_than_python_writes(pool, tmp_path):
    ex = pool(1)
    ex.pause()
    ex.submit(deeds.double, 10**5000)
    ex.submit(deeds.double, [10**5000])
    ex.submit(deeds.double, 1)
    within(CAP_S, lambda: ex.stop(0, save=tmp_path / "left.json"))
    assert [job["args"] for job in saved(tmp_path / "left.json")["jobs"]] == [None, None, [1]]


def test_an_option_without_a_text_is_told_as_an_error(pool, tmp_path):
    ex = pool(1)
    ex.pause()
    ex.options(key=NoText()).submit(deeds.double, 1)
    with pytest.raises(JournalError, match="cannot be written"):
        within(CAP_S, lambda: ex.stop(0, save=tmp_path / "left.json"))
    assert not list(tmp_path.iterdir())


class NoText:
    """A key= whose own text cannot be had."""

    def __call__(self, x):
        return f"key {x}"

    def __repr__(self):
        raise ValueError("none")
