"""Bad input: the right status, one line of text, no traceback, nothing on stdout, no process left."""

from __future__ import annotations

import os
import resource

import pytest

from ptss_mp.cli import main as program
from ptss_mp.cli import plan
from tests.cli.cli_support import HEAD, WITHOUT_OVERRIDE, assert_one_line, finish, jobs_file, ptss_mp, start

BOTH = pytest.mark.parametrize("command", ["run", "check"])


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ((), "required"),
        (("frobnicate",), "frobnicate"),
        (("--frobnicate",), "COMMAND"),
        (("run",), "jobs.py"),
        (("check",), "jobs.py"),
        (("run", "jobs.py", "--frobnicate"), "--frobnicate"),
        (("run", "jobs.py", "more.py"), "more.py"),
        (("check", "jobs.py", "--workers", "2"), "--workers"),
        (("doctor", "jobs.py"), "jobs.py"),
        (("doctor", "--frobnicate"), "--frobnicate"),
        (("doctor", "--json=1"), "--json"),
        # what is not there (yet) is said to be unknown
        *((("run", "jobs.py", *option.split()), option.split()[0]) for option in (
            "--trace t.json", "--top",
            "--dashboard", "--isolation landlock", "--timeout 5", "--memory 1GiB",
        )),
        *(((command,), command) for command in ("top", "report", "dashboard")),
        (("run", "jobs.py", "--only"), "--only"),
        (("run", "jobs.py", "--execution-log"), "--execution-log"),
        (("run", "jobs.py", "--state"), "--state"),
        (("run", "--only", "a", "jobs.py"), "jobs.py"),  # the file is taken for a name, and missed
        (("run", "jobs.py", "--work", "2"), "--work"),  # no abbreviations: they break when options are added
        (("run", "jobs.py", "--workers"), "--workers"),
        *((("run", "jobs.py", "--workers", n), "--workers") for n in ("0", "-1", "1e9", "1000000000", "abc")),
        *((("run", "jobs.py", "--workers", n), "--workers") for n in ("nan", "", "2.5", "٣", "1_0", " 1", "9" * 5000)),
        *((("run", "jobs.py", "--memfree", n), "--memfree") for n in ("0", "-1", "nan", "", "much", "9999TiB")),
        *((("run", "jobs.py", "--max-tasks", n), "--max-tasks") for n in ("0", "-1", "nan", "")),
        *((("run", "jobs.py", "--halt", n), "--halt") for n in ("", "fail=1", "now,fail=0", "soon,fail=3%%")),
        *((("run", "jobs.py", "--grace", n), "--grace") for n in ("-1", "inf", "nan", "1e308", "9 parsecs", "")),
        (("run", "jobs.py", "--log-level", "loud"), "--log-level"),
        (("run", "jobs.py", "--log-level", ""), "--log-level"),
        (("run", "jobs.py", "--log-json=yes"), "--log-json"),
        (("run", "jobs.py", "--dry-run=1"), "--dry-run"),
        (("run", "jobs.py", "--log-level", "a\x1b[31m\nb"), "\\x1b[31m\\nb".upper()),
    ],
)  # fmt: skip
def test_usage(tmp_path, args, word):
    ended = ptss_mp(*args, cwd=tmp_path)
    assert ended.status == 2, ended
    assert word.lower() in ended.err.lower(), ended
    assert_one_line(ended, 2)


@BOTH
class TestPath:
    def test_missing(self, tmp_path, command):
        assert_one_line(ptss_mp(command, tmp_path / "no.py"), 66, "no.py", "No such file")

    def test_below_a_file(self, tmp_path, command):
        path = jobs_file(tmp_path, "")
        assert_one_line(ptss_mp(command, path / "x.py"), 66, "Not a directory")

    def test_a_name_that_is_too_long(self, command):
        assert_one_line(ptss_mp(command, "x" * 5000), 66, "too long")

    def test_a_name_with_control_characters_and_no_text(self, tmp_path, command):
        name = b"a\x1b[31m\n\xff.py"
        assert_one_line(ptss_mp(command, os.fsdecode(name), cwd=tmp_path), 66, r"a\x1b[31m\n\udcff.py")

    def test_directory(self, tmp_path, command):
        assert_one_line(ptss_mp(command, tmp_path), 65, "a directory")

    def test_fifo(self, tmp_path, command):
        os.mkfifo(tmp_path / "fifo.py")
        assert_one_line(ptss_mp(command, tmp_path / "fifo.py"), 65, "no regular file")

    def test_device(self, command):
        assert_one_line(ptss_mp(command, "/dev/zero"), 65, "no regular file")

    def test_empty(self, tmp_path, command):
        (tmp_path / "jobs.py").touch()
        assert_one_line(ptss_mp(command, tmp_path / "jobs.py"), 65, "empty")

    def test_unreadable(self, tmp_path, command):
        path = jobs_file(tmp_path, "")
        path.chmod(0)
        with start(command, path, by=WITHOUT_OVERRIDE) as program:
            assert_one_line(finish(program), 77, "no permission")

    def test_another_suffix(self, tmp_path, command):
        path = jobs_file(tmp_path, "", "jobs.txt")
        assert_one_line(ptss_mp(command, path), 65, "ends in .py")

    def test_bytes_that_are_no_text(self, tmp_path, command):
        (tmp_path / "jobs.py").write_bytes(b"x = 1\n\xff\xfe\x00\n")
        assert_one_line(ptss_mp(command, tmp_path / "jobs.py"), 65, "jobs.py")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(:\n", ("jobs.py:3: SyntaxError",)),
        ("\nraise KeyError('two\\nlines \\x1b[31m')\n", (r"jobs.py:4: KeyError: ", r"lines \x1b[31m")),
        ("sys.exit(0)\n", ("jobs.py:3: it called sys.exit(0)",)),
        ("os._exit(0)\n", ("exit status 0",)),
        ("os._exit(3)\n", ("exit status 3",)),
        ("import ctypes\nctypes.string_at(0)\n", ("jobs.py:4: ", "SIGSEGV")),
        ("os.abort()\n", ("jobs.py:3: ", "SIGABRT")),
        ("os.kill(os.getpid(), signal.SIGKILL)\n", ("SIGKILL",)),
        ("@task(name='a')\ndef f(): ...\n@task(name='a')\ndef g(): ...\n", ("jobs.py:5: ", ":3 already")),
        ("@task\ndef f(gg): ...\n@task\ndef g(): ...\n", ("jobs.py:3: ", "'gg'", "did you mean 'g'?")),
        ("@task(after='g')\ndef f(): ...\n", ("jobs.py:3: ", "'g'")),
        ("@task\ndef f(f): ...\n", ("jobs.py:3: ", "waits for itself")),
        ("@task\ndef f(g): ...\n@task\ndef g(f): ...\n", ("f -> g -> f",)),
        ("for i in range(1000):\n    task(name=f't{i}', after=f't{(i + 1) % 1000}')(int)\n", ("1000 tasks",)),
        ("@task(interval='15 parsecs')\ndef f(): ...\n", ("jobs.py:3: ", "interval", "15 parsecs")),
        ("@task(timeout='10 parsecs')\ndef f(): ...\n", ("jobs.py:3: ", "10 parsecs")),
        ("import datetime as d\n@task(start_time=d.datetime(2030, 1, 1))\ndef f(): ...\n", ("time zone",)),
        (
            "import datetime as d\nat = d.datetime(2030, 1, 1, tzinfo=d.UTC)\n@task(start_time=at, deadline=at)\n"
            "def f(): ...\n",
            ("jobs.py:5: ", "start_time 2030-01-01", "deadline"),
        ),
        ("@task(start_time='-5s')\ndef f(): ...\n", ("jobs.py:3: ", "-5s")),
        ("import datetime as d\n@task(deadline=d.datetime(10000, 1, 1))\ndef f(): ...\n", ("jobs.py:4: ", "year")),
        *(
            (f"@task(name={name!r})\ndef f(): ...\n", ("jobs.py:3: ", "name must"))
            for name in ("", "a\0b", "a\nb", "a\x1bb", "a\u202eb", "a\udc80b", "x" * 1_048_576)
        ),
        ("@task(resources={'gpu': 1})\ndef f(): ...\n", ("jobs.py:3: ", "'f'", "no token 'gpu'", "it has none")),
        ("@task(env={'CUDA_VISIBLE_DEVICES': '{gpu}'})\ndef f(): ...\n", ("jobs.py:3: ", "'gpu'", "does not hold")),
        ("@task(env={'A=B': ''})\ndef f(): ...\n", ("jobs.py:3: ", "'='")),
        ("import threading\n@task(args=(threading.Lock(),))\ndef f(x): ...\n", ("jobs.py:4: ", "argument 1")),
    ],
)  # fmt: skip
@BOTH
def test_bad_file(tmp_path, command, source, words):
    assert_one_line(ptss_mp(command, jobs_file(tmp_path, source)), 65, *words)


@BOTH
def test_a_limit_beyond_what_may_be_allowed_here(tmp_path, command, monkeypatch, capsys):
    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (100, 200))
    assert program.main([command, str(jobs_file(tmp_path, "@task(open_files=200)\ndef f(): ...\n"))]) == 65
    assert "jobs.py:3: task 'f': open_files=200 and 11 of its worker's: 200 is" in capsys.readouterr().err


def test_a_file_that_loops_at_import(tmp_path, monkeypatch, capfd):
    """In this process, for the limit is a minute."""
    monkeypatch.setattr(plan, "IMPORT_S_MAX", 0.5)
    path = jobs_file(tmp_path, "while True:\n    pass\n")
    assert program.main(["run", str(path)]) == 65
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"ptss-mp: {path}:")
    assert err.endswith("its import has not ended after 0.5 s\n")
    assert len(err.splitlines()) == 1


@pytest.fixture
def untouched(tmp_path):
    """A jobs file that must not even be imported."""
    jobs_file(tmp_path, "open('touched', 'w').close()\n@task\ndef f(): ...\n")
    yield tmp_path
    assert not (tmp_path / "touched").exists(), "it is checked before anything runs"
    assert not [*tmp_path.rglob("*.tmp"), *tmp_path.rglob("log")]


class TestExecutionLog:
    @pytest.mark.parametrize("name", ["folder", "no/log", "jobs.py/log", "/proc/sys/kernel/log", "x" * 300, "fifo"])
    def test_places(self, untouched, name):
        (untouched / "folder").mkdir()
        os.mkfifo(untouched / "fifo")  # that nobody reads
        ended = ptss_mp("run", "jobs.py", "--execution-log", name, cwd=untouched)
        assert_one_line(ended, 73, "cannot create the execution log", name[:9])

    @pytest.mark.parametrize("name", ["old.log", "folder/log"])
    def test_no_permission(self, untouched, name):
        (untouched / "old.log").touch(0o444)
        (untouched / "folder").mkdir(0o555)
        with start("run", "jobs.py", "--execution-log", name, by=WITHOUT_OVERRIDE, cwd=untouched) as program:
            assert_one_line(finish(program), 73, "cannot create the execution log", "Permission denied")


def test_a_bad_file_leaves_no_log_and_no_state(tmp_path):
    path = jobs_file(tmp_path, "1 / 0\n")
    assert_one_line(ptss_mp("run", path, "--execution-log", tmp_path / "log", "--state", tmp_path / "s"), 65)
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name != "__pycache__") == ["jobs.py"]


class TestReport:
    @pytest.fixture(autouse=True)
    def _untouched(self, untouched):
        pass

    def test_name(self, tmp_path):
        assert_one_line(ptss_mp("run", "jobs.py", "--report", "r.html", cwd=tmp_path), 2, "r.html", ".json")

    def test_no_permission(self, tmp_path):
        (tmp_path / "folder").mkdir(0o555)
        with start("run", "jobs.py", "--report", "folder/r.json", by=WITHOUT_OVERRIDE, cwd=tmp_path) as program:
            assert_one_line(finish(program), 73, "cannot create the report", "Permission denied")

    def test_no_folder(self, tmp_path):
        assert_one_line(ptss_mp("run", "jobs.py", "--report", "no/r.json", cwd=tmp_path), 73, "No such file")

    def test_a_directory(self, tmp_path):
        (tmp_path / "r.json").mkdir()
        assert_one_line(ptss_mp("run", "jobs.py", "--report", "r.json", cwd=tmp_path), 73, "r.json")

    def test_no_regular_file(self, tmp_path):
        os.mkfifo(tmp_path / "r.json")
        assert_one_line(ptss_mp("run", "jobs.py", "--report", "r.json", cwd=tmp_path), 73, "r.json")

    def test_a_folder_where_nothing_can_be_made(self, tmp_path):
        ended = ptss_mp("run", "jobs.py", "--report", "/proc/sys/kernel/r.json", cwd=tmp_path)
        assert_one_line(ended, 73, "cannot create the report")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--execution-log", "jobs.py"), ("--execution-log 'jobs.py'", "the jobs file")),
        (("--state", "below/../jobs.py"), ("--state", "the jobs file")),
        (("--execution-log", "link"), ("'link'", "the jobs file")),
        (("--report", "a.json", "--state", "a.json"), ("--state 'a.json'", "--report")),
        (("--execution-log", "./new", "--state", "new"), ("--state 'new'", "--execution-log")),
    ],
)
def test_one_file_for_two_things(untouched, args, words):
    (untouched / "below").mkdir()
    (untouched / "link").symlink_to("jobs.py")
    before = (untouched / "jobs.py").read_bytes()
    assert_one_line(ptss_mp("run", "jobs.py", *args, cwd=untouched), 2, *words)
    assert (untouched / "jobs.py").read_bytes() == before


def test_nothing_half_made(tmp_path):
    path = jobs_file(tmp_path, "1 / 0\n")
    assert ptss_mp("run", path, "--report", tmp_path / "r.json").status == 65
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.name != "__pycache__") == ["jobs.py"]


def test_our_own_fault_is_one_line(tmp_path, monkeypatch, capfd):
    def broken(_path):
        raise ZeroDivisionError("planted")

    from ptss_mp.cli import check  # now, so that it has the real one again afterwards

    monkeypatch.setattr(check, "check_path", broken)
    monkeypatch.delenv("PTSS_MP_DEBUG", raising=False)
    assert program.main(["check", "jobs.py"]) == 70
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("ptss-mp: our own fault: ZeroDivisionError: planted; ")
    assert len(err.splitlines()) == 1


@BOTH
def test_a_large_file_of_tasks_is_no_recursion(tmp_path, command):
    source = "def f(): pass\nfor i in range(10_000):\n    task(name=f't{i}', after=f't{i - 1}' if i else None)(f)\n"
    args = ("--dry-run",) if command == "run" else ()
    ended = ptss_mp(command, jobs_file(tmp_path, source), *args)
    assert ended.status == 0, ended.err
    assert ended.out.splitlines()[-1] == "t9999 <- t9998"


def test_head_has_two_lines():
    assert HEAD.count("\n") == 2  # the line numbers above count on it


def test_the_bounds_are_those_of_the_library():
    from ptss_mp import declare, pool, retrying
    from ptss_mp.cli import values

    assert values.WORKERS_MAX == pool.WORKERS_MAX
    assert values.RETRIES_MAX == retrying.RETRIES_MAX
    assert (values.FILES_MAX, values.PROCESSES_MAX) == (declare.FILES_MAX, declare.PROCESSES_MAX)
