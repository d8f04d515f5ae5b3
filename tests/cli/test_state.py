"""`--state F`: what a stopped run has left is written, and taken up by the next."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.cli.cli_support import WITHOUT_OVERRIDE, Bell, assert_one_line, finish, jobs_file, ptss_mp, start


def counted(bell):
    """A chain of jobs that count their runs; `held` holds the first run up and lets later ones go."""
    return (
        "def count(n, *_):\n    open(n, 'a').write('x')\n    return n\n"
        "def hold():\n"
        f"    if not os.path.exists('held'):\n        open('held', 'a').write('x')\n        {bell.ring('here')}\n"
        "        time.sleep(300)\n"
        "first = task(args=('first',))(count)\n"
        "before = task(args=('before',), after=first)(count)\n"
        "@task\ndef value(): return count('value')\n"
        "held = task(after=[before, value])(hold)\n"
        "pages = task(after=held).map(count, ['p0', 'p1', 'p2'])\n"
        "@task(after=pages)\ndef last(value): count(value + '.last')\n"
    )


def runs(folder):
    known = ("first", "before", "value", "p0", "p1", "p2", "value.last")
    return {name: len((folder / name).read_text()) for name in known if (folder / name).exists()}


def stop(program, bell, number=signal.SIGTERM):
    bell.wait()
    program.send_signal(number)
    return finish(program)


def test_what_did_not_run_is_taken_up(tmp_path, bell):
    path, state = jobs_file(tmp_path, counted(bell)), tmp_path / "state.json"
    args = ("run", path, "--state", state, "--workers", "1", "--grace", "0")
    with start(*args, cwd=tmp_path) as program:
        ended = stop(program, bell)
    assert ended.status == 143, ended
    assert ended.lines[-1] == f"5 jobs left for the next run with --state {state}"
    left = json.loads(state.read_text())
    assert list(left) == ["schema", "file", "stopped", "signal", "left", "ended"]
    assert (left["schema"], left["file"], left["signal"]) == (1, str(path), 15)
    assert left["left"] == ["held", "pages[0]", "pages[1]", "pages[2]", "last"]
    assert left["ended"] == {"first": "succeeded", "before": "succeeded", "value": "succeeded"}
    assert left["stopped"].endswith("Z")

    dry = ptss_mp(*args, "--dry-run", cwd=tmp_path)
    assert dry.out.splitlines() == ["value", "held <- value", "pages (3 jobs) <- held", "last <- value, pages"]
    assert state.exists(), "a dry run takes nothing up"

    ended = ptss_mp(*args, cwd=tmp_path)
    assert ended.status == 0, ended
    once = dict.fromkeys(("first", "before", "p0", "p1", "p2", "value.last"), 1)
    assert runs(tmp_path) == once | {"value": 2}, "only the value that is needed is made again"
    assert not state.exists(), "nothing is left"

    assert ptss_mp(*args, cwd=tmp_path).status == 0
    assert set(runs(tmp_path).values()) == {2, 3}, "without a state all begins afresh"


def test_a_failure_is_no_reason_to_run_again_and_is_remembered_by_the_alarm(tmp_path, bell):
    source = (
        "@task\ndef bad():\n    open('bad', 'a').write('x')\n    1 / 0\n"
        f"@task(after=bad, run_if='done')\ndef slow():\n    {bell.ring('here')}\n"
        "    if not os.path.exists('go'): time.sleep(300)\n"
        "@task(after=[bad, slow], run_if='failure')\ndef alarm(): print('alarm')\n"
    )
    path, state = jobs_file(tmp_path, source), tmp_path / "s"
    args = ("run", path, "--state", state, "--grace", "0")
    with start(*args, cwd=tmp_path) as program:
        stop(program, bell, signal.SIGINT)
    data = json.loads(state.read_text())
    assert (data["left"], data["ended"], data["signal"]) == (["slow", "alarm"], {"bad": "failed"}, 2)
    (tmp_path / "go").touch()
    ended = ptss_mp(*args, cwd=tmp_path)
    assert (ended.status, ended.out) == (0, "alarm\n"), ended
    assert (tmp_path / "bad").read_text() == "x"
    assert not state.exists()


def test_what_was_never_submitted_and_what_depends_on_it_is_left(tmp_path, bell):
    source = f"def f(n):\n    {bell.ring('here')}\n    time.sleep(300)\n"
    source += "b = task().map(f, range(50))\n@task\ndef s(b): ...\n"
    path, state = jobs_file(tmp_path, source), tmp_path / "s"
    with start("run", path, "--workers", "1", "--max-tasks", "2", "--grace", "0", "--state", state) as program:
        stop(program, bell)
    assert json.loads(state.read_text())["left"] == [*(f"b[{n}]" for n in range(50)), "s"]


def test_only_narrows_what_was_left(tmp_path, bell):
    path, state = jobs_file(tmp_path, counted(bell)), tmp_path / "state.json"
    args = ("run", path, "--state", state, "--workers", "1", "--grace", "0")
    with start(*args, "--only", "pages", cwd=tmp_path) as program:
        stop(program, bell)
    assert json.loads(state.read_text())["left"] == ["held", "pages[0]", "pages[1]", "pages[2]"], "of what was asked"
    ended = ptss_mp(*args, "--only", "pages[1]", cwd=tmp_path)
    assert ended.status == 0, ended
    assert json.loads(state.read_text())["left"] == ["pages[0]", "pages[2]"]
    assert json.loads(state.read_text())["signal"] is None
    assert_one_line(ptss_mp(*args, "--only", "page", cwd=tmp_path), 2, "did you mean 'pages'")
    ended = ptss_mp(*args, "--only", "first", cwd=tmp_path)
    assert (ended.status, ended.out) == (0, "")
    assert "nothing was left to run" in ended.lines[0]
    assert json.loads(state.read_text())["left"] == ["pages[0]", "pages[2]"]


def test_a_run_that_ends_leaves_none(tmp_path):
    path = jobs_file(tmp_path, "@task\ndef f(): 1 / 0\n@task\ndef g(f): ...\n@task(start_time='50ms')\ndef h(): ...\n")
    assert ptss_mp("run", path, "--state", tmp_path / "s").status == 1
    assert not (tmp_path / "s").exists()


def test_a_link_to_a_state_stays_and_the_state_is_taken_away(tmp_path):
    """Regression: the link was taken away, and a state that had been run stayed for whoever asks the file itself."""
    path, state, link = jobs_file(tmp_path, "@task\ndef f(): ...\n"), tmp_path / "state.json", tmp_path / "link"
    state.write_text(json.dumps(GOOD | {"file": str(path)}))
    link.symlink_to(state)
    assert ptss_mp("run", path, "--state", link).status == 0
    assert link.is_symlink()
    assert not state.exists()
    assert ptss_mp("run", path, "--state", link).status == 0, "a link to nothing: all begins afresh"


def test_a_state_is_written_though_the_report_cannot_be(tmp_path, bell):
    go = Bell(tmp_path, "go")
    (tmp_path / "folder").mkdir()
    source = f"@task\ndef f():\n    {bell.ring('here')}\n    open({str(go.path)!r}).readline()\n@task\ndef g(f): ...\n"
    path, state, report = jobs_file(tmp_path, source), tmp_path / "s", tmp_path / "folder" / "r.json"
    with start("run", path, "--state", state, "--report", report) as program:
        bell.wait()
        program.terminate()
        program.stderr.readline()
        report.parent.rmdir()
        with open(go.path, "w") as file:
            file.write("go\n")
        ended = finish(program)
    go.close()
    assert ended.status == 73, ended
    assert "cannot create the report" in ended.err
    assert json.loads(state.read_text())["left"] == ["g"]


# ---- Bad input.


def test_a_file_that_cannot_be_read_is_no_fault_of_ours(tmp_path):
    """Regression: it can be opened, and the first read fails."""
    path = jobs_file(tmp_path, "@task\ndef f(): ...\n")
    assert_one_line(ptss_mp("run", path, "--state", "/proc/self/mem"), 65, "is no state of this run", "cannot be read")


GOOD = {"schema": 1, "file": "", "stopped": "", "signal": None, "left": ["f"], "ended": {}}


class TestBad:
    @pytest.fixture(autouse=True)
    def touching(self, tmp_path):
        jobs_file(tmp_path, "@task\ndef f(): open('touched', 'w').close()\n")
        yield
        assert not (tmp_path / "touched").exists()
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]

    @pytest.mark.parametrize(
        ("text", "word"),
        [
            ("", "not JSON"),
            ("\x00\x01\x1b[31m", "not JSON"),
            ("[" * 100_000, "not JSON"),
            ("7", "schema"),
            ("null", "schema"),
            ("{}", "schema"),
            (GOOD | {"schema": 2}, "schema"),
            (GOOD | {"left": "f"}, '"left"'),
            (GOOD | {"left": [1]}, '"left"'),
            (GOOD | {"left": None}, '"left"'),
            (GOOD | {"ended": []}, '"left"'),
            (GOOD | {"ended": {"f": 1}}, '"left"'),
            (GOOD | {"file": "/other/jobs.py"}, "/other/jobs.py"),
            (GOOD | {"file": "\x1b[31m\n"}, r"\x1b[31m\n"),
            (GOOD | {"file": "jobs", "left": ["f", "gone\u202e"]}, r"'gone\u202e'"),
        ],
    )  # fmt: skip
    def test_content(self, tmp_path, text, word):
        if isinstance(text, dict):
            text = json.dumps(text | ({"file": str(tmp_path / "jobs.py")} if text["file"] == "jobs" else {}))
        (tmp_path / "s").write_text(text)
        assert_one_line(ptss_mp("run", "jobs.py", "--state", "s", cwd=tmp_path), 65, word, "'s'")
        assert (tmp_path / "s").read_text() == text, "it is not ours to change"

    def test_no_text(self, tmp_path):
        (tmp_path / "s").write_bytes(b'{"schema": "\xff\xfe"}')
        assert_one_line(ptss_mp("run", "jobs.py", "--state", "s", cwd=tmp_path), 65, "not JSON")

    def test_places(self, tmp_path):
        (tmp_path / "folder").mkdir()
        os.mkfifo(tmp_path / "fifo")
        for name in ("folder", "fifo", "no/s", "jobs.py/s", "/proc/sys/kernel/s", "/dev/full", "x" * 300):
            assert_one_line(ptss_mp("run", "jobs.py", "--state", name, cwd=tmp_path), 73, "cannot create the state")

    def test_unreadable(self, tmp_path):
        (tmp_path / "s").touch(0)
        with start("run", "jobs.py", "--state", "s", by=WITHOUT_OVERRIDE, cwd=tmp_path) as program:
            assert_one_line(finish(program), 77, "no permission")

    def test_a_folder_where_nothing_can_be_made(self, tmp_path):
        (tmp_path / "folder").mkdir(0o555)
        with start("run", "jobs.py", "--state", "folder/s", by=WITHOUT_OVERRIDE, cwd=tmp_path) as program:
            assert_one_line(finish(program), 73, "cannot create the state", "Permission denied")
