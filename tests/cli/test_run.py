"""`run`: what it prints, writes and ends with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from tests.cli.cli_support import CAP_S, PROGRAM, REPOSITORY, finish, jobs_file, ptss_mp, start

OK = "@task\ndef ok(): print('fine')\n"
FAILS = "@task\ndef fails(): raise ValueError('bad luck')\n"
LATE = "@task(deadline='100ms')\ndef late(): time.sleep(60)\n"


# ---- Exit statuses.


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (OK, 0),
        (FAILS + OK, 1),
        (LATE + OK, 3),
        (LATE + FAILS, 1),
        ("@task\ndef crashes(): os.abort()\n", 1),
        ("@task\ndef leaves(): os._exit(0)\n", 1),
        ("@task\ndef leaves(): sys.exit(0)\n", 1),
        ("@task(timeout='100ms')\ndef hangs(): time.sleep(60)\n", 1),
        (LATE + "@task\ndef waits(late): ...\n", 3),
        (FAILS + "@task\ndef waits(fails): ...\n", 1),
        (OK + "@task(after=ok, run_if='failure')\ndef alarm(): ...\n", 0),
        ("@task(deadline='1ms', on_miss='finish')\ndef late(): time.sleep(0.05)\n", 3),
    ],
)
def test_exit_status(tmp_path, source, status):
    ended = ptss_mp("run", jobs_file(tmp_path, source), "--workers", "2")
    assert ended.status == status, ended
    assert "Traceback" not in ended.err


def test_no_tasks_is_no_failure(tmp_path):
    ended = ptss_mp("run", jobs_file(tmp_path, "x = 1\n"))
    assert (ended.status, ended.out) == (0, "")
    assert "no tasks" in ended.err


# ---- Values, batches, conditions.


def test_values_travel_along_parameters(tmp_path):
    path = jobs_file(
        tmp_path,
        "class Picture:\n    def __init__(self, n): self.n = n\n"
        "@task\ndef config(): return 10\n"
        "def convert(n, config): return Picture(n * config)\n"
        "pages = task().map(convert, range(5))\n"
        "@task\ndef total(pages): print(sum(p.n for p in pages))\n",
    )
    ended = ptss_mp("run", path, "--workers", "2")
    assert (ended.status, ended.out) == (0, "100\n"), ended
    assert "7 jobs: 7 succeeded" in ended.lines[-1]


def test_positional_only_arguments_and_keywords(tmp_path):
    path = jobs_file(
        tmp_path,
        "@task\ndef a(): return 'a'\n@task\ndef b(): return 'b'\n"
        "@task(args=(1,), kwargs={'z': 2})\ndef c(x, a, /, b, *, z): print(x, a, b, z)\n",
    )
    assert ptss_mp("run", path).out == "1 a b 2\n"


def test_the_alarm_gets_the_outcome(tmp_path):
    path = jobs_file(
        tmp_path,
        FAILS + "@task(run_if='failure')\ndef alarm(fails): print(fails.status, '|', fails.error)\n",
    )
    ended = ptss_mp("run", path)
    assert ended.status == 1
    assert ended.out == "failed | ValueError: bad luck\n"


def test_after_a_batch_and_by_name(tmp_path):
    path = jobs_file(
        tmp_path,
        "def add(n):\n    with open('order', 'a') as f: f.write(f'{n} ')\n"
        "last = task(args=('last',), after=['b', 'first'])(add)\nb = task().map(add, range(5))\n"
        "first = task(args=('first',))(add)\n",
    )
    assert ptss_mp("run", path, "--workers", "1", cwd=tmp_path).status == 0
    assert (tmp_path / "order").read_text().split()[-1] == "last"


def test_a_few_at_a_time(tmp_path):
    path = jobs_file(tmp_path, "b = task().map(abs, range(200))\n@task\ndef s(b): print(sum(b))\n")
    ended = ptss_mp("run", path, "--workers", "2", "--max-tasks", "3")
    assert (ended.status, ended.out) == (0, f"{sum(range(200))}\n"), ended


# ---- The file is imported in workers only; its neighbours are found.


def test_the_parent_never_imports_the_file(tmp_path):
    path = jobs_file(tmp_path, "open('pids', 'a').write(f'{os.getpid()}\\n')\n" + OK)
    with start("run", path, cwd=tmp_path) as program:
        assert finish(program).status == 0
        assert str(program.pid) not in (tmp_path / "pids").read_text().split()


def test_a_module_beside_the_file_is_found_also_late(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "beside.py").write_text("def value(): return 7\n")
    source = "b = task().map(abs, range(50))\n@task\ndef f(b):\n    import beside as m\n    print(m.value())\n"
    ended = ptss_mp("run", jobs_file(tmp_path / "lib", source), "--workers", "1", cwd=tmp_path)
    assert (ended.status, ended.out) == (0, "7\n"), ended


@pytest.mark.parametrize("name", ["json.py", "my-jobs.v2.py", "ptss_mp.py"])
def test_any_file_name_will_do(tmp_path, name):
    (tmp_path / "there").mkdir()
    source = "class C:\n    x = 7\n@task\ndef make(): return C()\n@task\ndef show(make): print(make.x)\n"
    ended = ptss_mp("run", jobs_file(tmp_path / "there", source, name), cwd=tmp_path)
    assert (ended.status, ended.out) == (0, "7\n"), ended


def test_what_an_import_prints_is_no_data(tmp_path):
    ended = ptss_mp("run", jobs_file(tmp_path, "print('hello', flush=True)\n" + OK))
    assert (ended.status, ended.out) == (0, "fine\n")


# ---- The summary.


def summary_line(ended, name):
    return next(line for line in ended.lines if line.startswith(f"{name}: "))


def test_a_failed_job_has_one_line_with_cause_place_seconds_memory(tmp_path):
    path = jobs_file(
        tmp_path,
        "import ctypes, json\n"
        "def helper(): json.loads('{')\n"
        "@task\ndef raises(): helper()\n"
        "@task\ndef reads():\n    print('about to read', file=sys.stderr)\n    ctypes.string_at(0)\n"
        "@task\ndef leaves(): os._exit(3)\n"
        "@task(timeout='200ms')\ndef hangs():\n    while True:\n        pass\n",
    )
    ended = ptss_mp("run", path, "--workers", "2")
    assert ended.status == 1
    raises = summary_line(ended, "raises")
    assert raises.startswith("raises: failed: JSONDecodeError: ")
    assert f"at {path}:4 in helper" in raises  # the user's line, not the library's below it
    reads = summary_line(ended, "reads")
    assert reads.startswith("reads: crashed (SIGSEGV)")
    assert f"at {path}:10 in reads" in reads
    assert "about to read" in reads
    assert summary_line(ended, "leaves").startswith("leaves: crashed (exit status 3)")
    assert summary_line(ended, "hangs").startswith("hangs: timeout")
    for name in ("raises", "reads", "leaves", "hangs"):
        assert " s | " in summary_line(ended, name) + " | ", ended
    assert ended.lines[-1].startswith("4 jobs: "), ended
    assert "Traceback" not in ended.err


def test_control_characters_are_made_visible(tmp_path):
    path = jobs_file(tmp_path, "@task\ndef f(): raise ValueError('\\x1b[31mred\\nline\\u202e')\n")
    ended = ptss_mp("run", path)
    assert "\x1b" not in ended.err
    assert r"\x1b[31mred" in summary_line(ended, "f")
    assert r"\u202e" in summary_line(ended, "f")


def test_a_dependent_names_the_root(tmp_path):
    ended = ptss_mp("run", jobs_file(tmp_path, FAILS + "@task\ndef b(fails): ...\n@task\ndef c(b): ...\n"))
    assert "fails" in summary_line(ended, "c")
    assert "3 jobs: " in ended.lines[-1]
    assert "2 dependency" in ended.lines[-1]


def test_progress_counts_what_pauses_between_two_attempts(tmp_path):
    source = (
        "from ptss_mp import Retry\n"
        "@task(retries=Retry(exception=1, backoff=2.5, jitter=0))\n"
        "def f():\n    if current().attempt == 1: raise ValueError\n"
    )
    shown = ptss_mp("run", jobs_file(tmp_path, source.replace("import Retry", "import Retry, current"))).lines
    assert any("0 running, 1 to be tried again, " in line for line in shown), shown


def test_progress_is_shown_and_can_be_silenced(tmp_path):
    source = "b = task().map(time.sleep, [0.01] * 20)\n@task\ndef s(b): time.sleep(1.5)\n"
    path = jobs_file(tmp_path, source)
    shown = [line for line in ptss_mp("run", path).lines if " done, " in line]
    assert shown
    assert shown[0].startswith("20/21 done, 0 failed, 1 running, ")
    assert len(shown) == 1, "nothing changed after it"
    assert len(ptss_mp("run", path, "--no-progress").lines) == 1


def test_what_a_job_tells_of_itself_is_shown(tmp_path):
    source = (
        "from ptss_mp import current\n"
        "@task\ndef long():\n    current().progress(3, 10, 'page\\x1b[2J 3')\n    time.sleep(2.5)\n"
    )
    shown = [line for line in ptss_mp("run", jobs_file(tmp_path, source)).lines if " done, " in line]
    assert len(shown) == 1, "told once, for nothing changed after it"
    assert shown[0].endswith("| long: 3 of 10, page\\x1b[2J 3")


def test_debug_shows_each_transition(tmp_path):
    ended = ptss_mp("run", jobs_file(tmp_path, OK), "--log-level", "debug")
    assert ended.status == 0
    assert sum(" ok" in line for line in ended.lines) >= 3, ended


# ---- The report.


def test_the_report_holds_every_outcome(tmp_path):
    path = jobs_file(tmp_path, OK + FAILS + "@task\ndef crashes(): os.abort()\n")
    report = tmp_path / "r.json"
    report.write_text("old")
    ended = ptss_mp("run", path, "--report", report)
    assert ended.status == 1
    data = json.loads(report.read_text())
    assert data["schema"] == 1
    jobs = {job["name"]: job for job in data["jobs"]}
    assert {name: job["status"] for name, job in jobs.items()} == {
        "ok": "succeeded",
        "fails": "failed",
        "crashes": "crashed",
    }
    assert (jobs["crashes"]["signal_name"], jobs["ok"]["stdout"]) == ("SIGABRT", "fine\n")
    summary = data["summary"]
    assert (summary["total"], summary["succeeded"], summary["failed"], summary["crashed"]) == (3, 1, 1, 1)
    assert summary["exit_status"] == 1
    assert summary["seconds"] > 0
    assert summary["started"].endswith("Z")
    assert {entry.name for entry in tmp_path.iterdir()} - {"__pycache__"} == {"jobs.py", "r.json"}


def test_the_report_follows_a_link_and_has_ordinary_rights(tmp_path):
    (tmp_path / "link.json").symlink_to("real.json")
    assert ptss_mp("run", jobs_file(tmp_path, OK), "--report", tmp_path / "link.json").status == 0
    assert (tmp_path / "link.json").is_symlink()
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "real.json").stat().st_mode & 0o777 == 0o666 & ~umask


# ---- stdout.


def test_what_failed_jobs_print_is_no_data(tmp_path):
    ended = ptss_mp("run", jobs_file(tmp_path, "@task\ndef f():\n    print('half')\n    1 / 0\n" + OK))
    assert ended.out == "fine\n"


def test_a_reader_that_goes_away_ends_nothing(tmp_path):
    path = jobs_file(tmp_path, "def say(n): print('x' * 1000)\nb = task().map(say, range(200))\n")
    read, write = os.pipe()
    os.close(read)
    with start("run", path, "--report", tmp_path / "r.json", stdout=write) as program:
        os.close(write)
        ended = finish(program)
    assert ended.status == 0, ended
    assert "Traceback" not in ended.err
    assert "Broken" not in ended.err
    assert json.loads((tmp_path / "r.json").read_text())["summary"]["succeeded"] == 200


def test_a_full_disk_is_told(tmp_path):
    path = jobs_file(tmp_path, OK)
    with open("/dev/full", "w") as full, start("run", path, stdout=full.fileno()) as program:
        ended = finish(program)
    assert ended.status == 74, ended
    assert "No space left" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams(tmp_path, closed):
    path = jobs_file(tmp_path, OK)
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, "run", str(path)]
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(command, capture_output=True, timeout=60, env=env, check=False)
    assert ended.returncode == 0, ended


def test_help_and_version():
    for args in (("--help",), ("run", "--help"), ("check", "--help")):
        ended = ptss_mp(*args)
        assert (ended.status, ended.err) == (0, "")
        assert "jobs.py" in ended.out or "COMMAND" in ended.out
    assert ptss_mp("--version").out.startswith("ptss-mp ")


def test_the_command_line_is_quick_to_start(tmp_path):
    """`--help` imports neither the executor nor what it stands on."""
    code = "import sys; sys.argv = ['x', '--help']\nfrom ptss_mp.cli.main import main\nmain()\n"
    code += "print([m for m in sys.modules if m in ('psutil', 'ptss_mp.executor', 'asyncio', 'multiprocessing')])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


def test_a_current_folder_that_is_gone(tmp_path):
    path = jobs_file(tmp_path, OK)
    (tmp_path / "gone").mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    command = ["sh", "-c", script, "sh", str(tmp_path / "gone"), *PROGRAM, "run"]
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=60, env=env, check=False)
    assert (ended.returncode, ended.stdout) == (0, "fine\n"), ended
    (tmp_path / "gone").mkdir()
    ended = subprocess.run([*command, "jobs.py"], capture_output=True, text=True, timeout=60, env=env, check=False)
    assert ended.returncode == 66, ended
    assert len(ended.stderr.splitlines()) == 1


def test_a_large_batch_is_one_prerequisite(tmp_path):
    """Linear in the number of values: 20,000 took half a minute when each was compared with all before."""
    path = jobs_file(tmp_path, "b = task().map(abs, range(20_000))\n@task\ndef s(b): print(sum(b))\n")
    ended = ptss_mp("run", path, "--workers", "2", "--max-tasks", "5000")
    assert (ended.status, ended.out) == (0, f"{sum(range(20_000))}\n"), ended


@pytest.mark.parametrize("variable", ["HOME", "TMPDIR", "PATH", "LANG"])
def test_a_poor_environment(tmp_path, variable):
    ended = ptss_mp("run", jobs_file(tmp_path, OK), **{variable: "/nonexistent", "LC_ALL": "C"})
    assert (ended.status, ended.out) == (0, "fine\n"), ended


def test_poisoned_python_paths(tmp_path):
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "jobs.py").write_text("raise SystemExit('not this one')")
    poison = ["", "/nonexistent", "/dev/null", tmp_path / "file", tmp_path / "folder", "a\x1b[31m", "\udcff"]
    path = jobs_file(tmp_path, OK)
    command = [*PROGRAM, "run", path, "--workers", "1"]
    env = os.environ | {"PYTHONPATH": ":".join(map(str, [*poison, REPOSITORY]))}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)
    assert (ended.returncode, ended.stdout) == (0, "fine\n"), ended


# ---- Results that are hard to bring home.


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("lambda: 1", {"succeeded", "not_picklable"}),  # with cloudpickle, or without
        ("(n for n in range(3))", {"not_picklable"}),
        ("__import__('socket').socket()", {"not_picklable"}),
        ("__import__('threading').Lock()", {"not_picklable"}),
        ("float('nan')", {"succeeded"}),
        ("10 ** 100_000", {"succeeded"}),
        ("(lambda l: l.append(l) or l)([])", {"succeeded"}),
        ("b'x' * 100_000_000", {"succeeded"}),
        ("__import__('functools').reduce(lambda a, _: [a], range(100_000), [])", {"succeeded", "not_picklable"}),
    ],
)
def test_what_a_job_returns(tmp_path, value, status):
    path, report = jobs_file(tmp_path, f"@task\ndef f(): return {value}\n" + OK), tmp_path / "r.json"
    ended = ptss_mp("run", path, "--report", report)
    found = {job["name"]: job["status"] for job in json.loads(report.read_text())["jobs"]}
    assert found["ok"] == "succeeded"
    assert found["f"] in status, ended
    assert ended.status == (0 if found["f"] == "succeeded" else 1)
    assert "Traceback" not in ended.err
    assert len(ended.lines) == (1 if found["f"] == "succeeded" else 2)


def test_a_name_like_a_path_is_a_name(tmp_path):
    (tmp_path / "below").mkdir()
    path = jobs_file(tmp_path / "below", "@task(name='../x')\ndef f(): print('ran')\n")
    ended = ptss_mp("run", path, "--only", "../x", "--execution-log", "log", "--state", "s", cwd=tmp_path / "below")
    assert (ended.status, ended.out) == (0, "ran\n"), ended
    assert not (tmp_path / "x").exists()


# ---- What a file prints while it is imported.


def test_an_import_is_heard_once(tmp_path):
    """It is imported by two workers and a warden; what it prints concerns nobody twice."""
    path = jobs_file(tmp_path, "print('to stdout')\nprint('to stderr', file=sys.stderr)\nos.write(1, b'raw')\n" + OK)
    for args in (("run", path, "--workers", "2"), ("check", path), ("run", path, "--dry-run")):
        ended = ptss_mp(*args)
        assert [ended.lines.count(line) for line in ("to stdout", "to stderr", "raw")] == [1, 1, 1], ended


def test_what_an_import_logs_is_heard_once_and_does_nothing(tmp_path):
    source = "import logging\nlogging.warning('at import \\x1b[31m')\nlogging.info('nobody asked')\n"
    path = jobs_file(tmp_path, source + OK)
    for args in (("run", path, "--no-progress"), ("check", path), ("run", path, "--dry-run")):
        ended = ptss_mp(*args)
        assert ended.status == 0
        assert len(ended.lines) == 2, ended
        assert ended.lines[0].endswith(r" WARNING root: at import \x1b[31m (job import of jobs.py)"), ended
    ended = ptss_mp("run", path, "--log-json", "--log-level", "info")
    assert [json.loads(line)["message"] for line in ended.lines[:2]] == ["at import \x1b[31m", "nobody asked"], ended


def test_what_an_import_keeps_of_stderr_goes_on_to_speak(tmp_path):
    """It is that of the import in the warden, which was silent only then."""
    source = "ERR = sys.stderr\n@task\ndef f():\n    ERR.write('in the job')\n    ERR.flush()\n    os._exit(1)\n"
    ended = ptss_mp("run", jobs_file(tmp_path, source))
    assert "stderr: in the job" in summary_line(ended, "f"), ended


def test_the_summary_tells_how_late_each_task_was(tmp_path):
    source = "@task(deadline='1ms', on_miss='finish')\ndef late(): time.sleep(0.05)\n@task\ndef other(): ...\n"
    source += "pages = task(deadline='1ms', on_miss='finish').map(time.sleep, [0.05] * 3)\n"
    ended = ptss_mp("run", jobs_file(tmp_path, source), "--no-progress", "--log-level", "ERROR", cwd=tmp_path)
    assert ended.status == 3, ended
    told = {line.partition(" ended after")[0] for line in ended.lines if " ended after" in line}
    assert told == {"late: 1 job", "pages: 3 jobs"}
    assert ended.lines[-1].startswith("5 jobs: 5 succeeded | ")


def test_what_has_ended_is_told_on_the_callback_thread():
    """Not on the thread that submits: what is told may write to a pipe that nobody reads."""
    from ptss_mp.cli.pool import RunExecutor

    told, threads = threading.Event(), []
    with RunExecutor(max_workers=1, capture=True) as pool:
        future = pool.submit(pow, 2, 3)
        assert future.result(CAP_S) == 8
        pool.tell_settled(future, lambda _: (threads.append(threading.current_thread()), told.set()))
        assert told.wait(CAP_S)
        assert threads == [pool._pool.callbacks.thread]
