"""`map module:function`: one JSON object per item, whatever becomes of it; items taken as there is room."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess

import pytest

from ptss_mp.cli.items import NAME_CHARS_MAX, safe
from tests.cli.cli_support import CAP_S, Bell, finish, ptss_mp, send, start

MODULE = """\
import os, signal, sys, time

open("imported", "a").write(f"{os.getpid()}\\n")

def up(item):
    print("out", item)
    print("err", item, file=sys.stderr)
    return item.upper()

def length(item): return len(item.encode("utf-8", "surrogateescape"))

def deed(item):
    print("did", item)
    if item == "crash": os.kill(os.getpid(), signal.SIGSEGV)
    if item == "fail": raise ValueError("it failed")
    if item == "exit": sys.exit(7)
    if item == "hang":
        while True: time.sleep(60)
    return item

def value(item): return eval(item)

def slow(item):
    time.sleep(float(item))
    return item

class Holder:
    @staticmethod
    def inner(item): return item

number = 7
def none(): ...
def two(a, b): ...
"""


@pytest.fixture
def here(tmp_path):
    (tmp_path / "m.py").write_text(MODULE)
    return tmp_path


def lines(ended) -> list[dict]:
    return [json.loads(line) for line in ended.out.splitlines()]


def by_item(ended) -> dict[str, dict]:
    return {line["item"]: line for line in lines(ended)}


def of_lines(here, data: bytes, *args: str):
    """Run `map` with its items on stdin."""
    (here / "input").write_bytes(data)
    with open(here / "input", "rb") as file, start("map", *args, cwd=here, stdin=file.fileno()) as program:
        return finish(program)


def end_input(program: subprocess.Popen[str]) -> None:
    """Give a program no further input."""
    program.stdin.close()
    program.stdin = None


class TestItems:
    def test_arguments(self, here):
        ended = ptss_mp("map", "m:up", "a", "b", cwd=here)
        assert ended.status == 0, ended
        told = by_item(ended)
        assert sorted(told) == ["a", "b"]
        first = told["a"]
        assert (first["value"], first["status"], first["ok"], first["name"]) == ("A", "succeeded", True, "up")
        assert (first["stdout"], first["stderr"], first["attempts"]) == ("out a\n", "err a\n", 1)
        assert first["key"].startswith("m.up")
        assert ended.lines[-1].startswith("2 items: 2 succeeded | "), ended

    @pytest.mark.parametrize("args", [("m:up", "--workers", "1", "a", "b"), ("--workers", "1", "m:up", "a", "b")])
    def test_options_stand_where_they_like(self, here, args):
        assert sorted(by_item(ptss_mp("map", *args, cwd=here))) == ["a", "b"]

    def test_what_looks_like_an_option(self, here):
        ended = ptss_mp("map", "m:up", "a", "--keep-order", "--", "--workers", "-", "--", cwd=here)
        assert [line["item"] for line in lines(ended)] == ["a", "--workers", "-", "--"]

    def test_lines_of_a_file(self, here):
        (here / "list").write_bytes(b"one\ntwo words\n\n\xff\xfe\r\nlast")
        ended = ptss_mp("map", "m:length", "--from-file", "list", "--keep-order", cwd=here)
        assert [line["item"] for line in lines(ended)] == ["one", "two words", "", "\udcff\udcfe\r", "last"]
        assert [line["value"] for line in lines(ended)] == [3, 9, 0, 3, 4]

    @pytest.mark.parametrize("args", [("m:up", "-"), ("m:up", "--from-file", "-")])
    def test_lines_of_stdin(self, here, args):
        assert sorted(by_item(of_lines(here, b"a\nb\n", *args))) == ["a", "b"]

    def test_items_that_end_with_nul(self, here):
        ended = of_lines(here, b"a\nb\0c\0", "m:up", "-0", "-", "--keep-order")
        assert [line["item"] for line in lines(ended)] == ["a\nb", "c"]

    def test_no_items_are_no_failure(self, here):
        ended = of_lines(here, b"", "m:up", "-")
        assert (ended.status, ended.out) == (0, "")
        assert ended.lines[-1].startswith("0 items: nothing to do"), ended

    def test_in_order(self, here):
        items = ["0.2", "0.01", "0.1", "0"]
        ended = ptss_mp("map", "m:slow", "--workers", "4", "--keep-order", *items, cwd=here)
        assert [line["item"] for line in lines(ended)] == items

    def test_a_method_by_its_path(self, here):
        assert by_item(ptss_mp("map", "m:Holder.inner", "a", cwd=here))["a"]["value"] == "a"


class TestValues:
    @pytest.mark.parametrize("text", ["None", "[1, 2.5, 'x']", "{'a': {'b': True}}", "'\\x7f\\x1b\\u2028'", "10**4000"])
    def test_json(self, here, text):
        ended = ptss_mp("map", "m:value", "--", text, cwd=here)
        assert by_item(ended)[text]["value"] == eval(text)
        assert "\x7f" not in ended.out
        assert len(ended.out.splitlines()) == 1

    @pytest.mark.parametrize("text", ["{1, 2}", "float('nan')", "float('inf')", "b'x'", "lambda: 0", "(x for x in ())"])
    def test_what_is_no_json_is_told_as_text(self, here, text):
        told = by_item(ptss_mp("map", "m:value", "--", text, cwd=here))[text]
        assert told["ok"]
        assert "value" not in told
        assert told["repr"][:3] == repr(eval(text))[:3]

    def test_what_cannot_be_told_fails_with_its_cause(self, here):
        told = by_item(ptss_mp("map", "m:value", "--", "10**100000", cwd=here))["10**100000"]
        assert (told["status"], "digits" in told["error"]) == ("failed", True)


class TestEnds:
    def test_each_way_to_end(self, here):
        args = ("--timeout", "0.5", "--joblog", "log", "--results", "res")
        ended = ptss_mp("map", "m:deed", *args, "good", "crash", "fail", "exit", "hang", cwd=here)
        told = by_item(ended)
        statuses = {item: line["status"] for item, line in told.items()}
        assert statuses == {
            "good": "succeeded", "crash": "crashed", "fail": "failed", "exit": "failed", "hang": "timeout",
        }  # fmt: skip
        assert (told["crash"]["signal_name"], told["exit"]["exit_code"]) == ("SIGSEGV", 7)
        assert "value" not in told["fail"]
        assert "ptss_mp" not in told["fail"]["stack"], "a frame of ours"
        assert ended.status == 1
        assert any(line.startswith("fail: deed: failed: ValueError: it failed | at m.py:") for line in ended.lines)
        head, *rows = (here / "log").read_text().splitlines()
        assert head.split("\t") == [
            "Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command",
        ]  # fmt: skip
        cells = {row.split("\t")[8]: row.split("\t") for row in rows}
        ends = {command: (cell[0], cell[6], cell[7]) for command, cell in cells.items()}
        assert ends == {
            "m:deed good": ("1", "0", "0"),
            "m:deed crash": ("2", "0", "11"),
            "m:deed fail": ("3", "1", "0"),
            "m:deed exit": ("4", "7", "0"),
            "m:deed hang": ("5", "-1", "0"),
        }
        assert float(cells["m:deed hang"][3]) >= 0.5
        for item, line in told.items():
            assert (here / "res" / item / "stdout").read_text() == f"did {item}\n"
            assert json.loads((here / "res" / item / "outcome.json").read_text()) == line

    def test_only_deadlines(self, here):
        ended = ptss_mp("map", "m:deed", "--deadline", "0.5", "hang", cwd=here)
        assert (ended.status, by_item(ended)["hang"]["status"]) == (3, "deadline")

    def test_retries(self, here):
        ended = ptss_mp("map", "m:deed", "--retries", "1", "crash", cwd=here)
        assert by_item(ended)["crash"]["attempts"] == 2

    def test_fresh(self, here):
        ended = ptss_mp("map", "m:up", "--fresh", "--workers", "1", "a", "b", "c", cwd=here)
        assert len({line["worker_pid"] for line in lines(ended)}) == 3

    def test_of_many_failures_stderr_tells_some(self, here):
        ended = of_lines(here, b"fail\n" * 100, "m:deed", "-", "--no-progress")
        assert len(lines(ended)) == 100
        assert len(ended.lines) == 22, ended.err
        assert "further failures" in ended.lines[20]

    def test_the_function_is_never_imported_here(self, here):
        with start("map", "m:up", "a", cwd=here) as program:
            pid = program.pid
            assert finish(program).status == 0
        assert pid not in map(int, (here / "imported").read_text().split())


class TestFiles:
    def test_a_log_is_added_to_and_a_torn_line_ended(self, here):
        (here / "log").write_text("half a li")
        ptss_mp("map", "m:up", "--joblog", "log", "a", cwd=here)
        ptss_mp("map", "m:up", "--joblog", "log", "b\tc\nd", cwd=here)
        first, *rows = (here / "log").read_text().splitlines()
        assert first == "half a li"
        assert [row.split("\t")[8] for row in rows] == ["m:up a", "m:up b\\tc\\nd"]

    def test_names_stay_within_the_folder(self, here):
        items = ["../x", "/etc/passwd", ".", "..", "a/b", "%2E", "x" * 300, "x" * 299 + "y", ".hidden", "\udcff", ""]
        (here / "list").write_bytes(b"\n".join(map(os.fsencode, items)) + b"\n")
        ended = ptss_mp("map", "m:length", "--from-file", "list", "--results", "res", cwd=here)
        assert ended.status == 0, ended
        assert sorted(os.listdir(here)) == ["imported", "list", "m.py", "res"] or "__pycache__" in os.listdir(here)
        assert sorted(os.listdir(here / "res")) == sorted(map(safe, items))
        assert len(set(map(safe, items))) == len(items)

    def test_safe_names(self):
        assert safe("inbox/a b.pdf") == "inbox%2Fa%20b.pdf"
        assert safe("plain-name_1.txt") == "plain-name_1.txt"
        assert len(safe("/" * 1_000_000)) <= NAME_CHARS_MAX

    def test_results_on_a_full_disk(self, here):
        (here / "res").mkdir()
        (here / "res" / "a").write_text("in the way")
        ended = ptss_mp("map", "m:up", "--results", "res", "a", "b", cwd=here)
        assert ended.status == 74
        assert "cannot write some results" in ended.err
        assert sorted(by_item(ended)) == ["a", "b"]
        assert (here / "res" / "b" / "outcome.json").exists()


class TestFlow:
    def test_an_item_is_told_of_before_the_next_is_there(self, here):
        """Whoever types a line sees what came of it."""
        with start("map", "m:up", "-", cwd=here, stdin=subprocess.PIPE) as program:
            for item in ("a", "b", "c"):
                program.stdin.write(item + "\n")
                program.stdin.flush()
                assert select.select([program.stdout], [], [], CAP_S)[0]
                assert json.loads(program.stdout.readline())["item"] == item
            end_input(program)
            assert finish(program).status == 0

    def test_memory_does_not_grow_with_the_items(self, here):
        def peak_kib(pid: int) -> int:
            with open(f"/proc/{pid}/status") as file:
                return int(next(line.split()[1] for line in file if line.startswith("VmHWM")))

        with start("map", "m:length", "-", "--no-progress", cwd=here, stdin=subprocess.PIPE) as program:
            peaks = []
            for _ in range(2):
                for _ in range(12):
                    program.stdin.write("an item of some length\n" * 1000)  # a pipe holds them
                    program.stdin.flush()
                    for _ in range(1000):
                        assert program.stdout.readline()
                peaks.append(peak_kib(program.pid))
            end_input(program)
            assert finish(program).status == 0
        assert peaks[1] - peaks[0] < 2048, peaks  # 12,000 items; the first ones filled what is kept of the last 10,000

    def test_the_input_is_taken_as_there_is_room(self, here):
        """An endless one, with stdout closed early: it ends, quietly."""
        with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
            try:
                with start("map", "m:up", "-", cwd=here, stdin=endless.stdout.fileno()) as program:
                    assert json.loads(program.stdout.readline())["item"] == "y"
                    program.stdout.close()
                    program.stdout = None
                    ended = finish(program)
            finally:
                endless.kill()
        assert (ended.status, ended.err) == (0, "")

    def test_a_full_stdout(self, here):
        with open("/dev/full", "w") as full, start("map", "m:up", "a", "b", cwd=here, stdout=full.fileno()) as program:
            ended = finish(program)
        assert ended.status == 74
        assert "cannot write stdout: No space left" in ended.err

    def test_a_signal_while_it_waits_for_input(self, here):
        with start("map", "m:up", "-", cwd=here, stdin=subprocess.PIPE) as program:
            program.stdin.write("a\n")
            program.stdin.flush()
            assert json.loads(program.stdout.readline())["item"] == "a"
            send(program, signal.SIGTERM)
            program.wait(CAP_S)
            end_input(program)
            ended = finish(program)
        assert ended.status == 143, ended
        assert "Traceback" not in ended.err

    @pytest.mark.parametrize("twice", [False, True])
    def test_interrupted(self, here, bell, twice):
        go = Bell(here, "go")
        (here / "w.py").write_text(
            f"def wait(item):\n    {bell.ring('here')}\n    open({str(go.path)!r}).readline()\n    return item\n"
        )
        try:
            with start("map", "w:wait", "--workers", "1", "a", "b", "c", cwd=here) as program:
                bell.wait()
                send(program, signal.SIGINT)
                assert "once more kills" in program.stderr.readline()
                if twice:
                    send(program, signal.SIGINT)
                else:
                    with open(go.path, "w") as file:
                        file.write("go\n")
                ended = finish(program)
        finally:
            go.close()
        statuses = {item: line["status"] for item, line in by_item(ended).items()}
        assert ended.status == 130
        assert statuses == {"a": "interrupted" if twice else "succeeded", "b": "cancelled", "c": "cancelled"}


class TestHalt:
    def test_now_kills_what_runs(self, here):
        ended = ptss_mp(
            "map", "m:deed", "--workers", "2", "--halt", "now,fail=1", "hang", "fail", "good", "good", "good", cwd=here
        )
        statuses = [line["status"] for line in lines(ended)]
        assert (ended.status, by_item(ended)["hang"]["status"]) == (1, "cancelled")
        assert statuses.count("failed") == 1
        assert any(line.startswith("halted: 1 job of ") for line in ended.lines), ended

    def test_soon_lets_what_runs_end(self, here, bell):
        go = Bell(here, "go")
        (here / "w.py").write_text(
            "def act(item):\n"
            "    if item == 'fail': raise ValueError\n"
            f"    {bell.ring('here')}\n    open({str(go.path)!r}).readline()\n    return item\n"
        )
        try:
            with start(
                "map", "w:act", "--workers", "2", "--halt", "soon,fail=1", "-", cwd=here, stdin=subprocess.PIPE
            ) as p:
                p.stdin.write("runs\n")
                p.stdin.flush()
                bell.wait()
                p.stdin.write("fail\n")
                p.stdin.flush()
                while "halted" not in (line := p.stderr.readline()):
                    assert line
                with open(go.path, "w") as file:
                    file.write("go\n")
                p.wait(CAP_S)
                end_input(p)
                ended = finish(p)
        finally:
            go.close()
        assert {item: line["status"] for item, line in by_item(ended).items()} == {
            "runs": "succeeded",
            "fail": "failed",
        }
        assert ended.status == 1

    def test_a_share_is_judged_once_it_can_be(self, here):
        """The first of three fails: that is not yet a quarter, for nothing is known of a fourth."""
        few = ptss_mp("map", "m:deed", "--halt", "soon,fail=25%", "--workers", "1", "fail", "a", "b", cwd=here)
        assert len(lines(few)) == 3
        assert "halted" not in few.err
        many = of_lines(here, b"fail\n" * 5000, "m:deed", "-", "--halt", "soon,fail=50%", "--no-progress")
        assert len(lines(many)) < 5000
        assert "halted" in many.err

    def test_of_a_run(self, tmp_path):
        (tmp_path / "jobs.py").write_text(
            "import time\nfrom ptss_mp import task\n@task\ndef hang(): time.sleep(300)\n"
            "@task\ndef bad(): raise ValueError('no')\nmany = task(after=bad, run_if='done').map(print, range(3))\n"
        )
        ended = ptss_mp("run", "jobs.py", "--halt", "now,fail=1", "--report", "r.json", "--workers", "2", cwd=tmp_path)
        assert ended.status == 1
        assert ended.lines[0].startswith("halted: 1 job of 1 failed (--halt now,fail=1)"), ended
        assert "shutdown" not in ended.err
        statuses = {job["name"]: job["status"] for job in json.loads((tmp_path / "r.json").read_text())["jobs"]}
        assert statuses == {
            "bad": "failed",
            "hang": "cancelled",
            **{f"many[{number}]": "cancelled" for number in range(3)},
        }


BAD = [
    (("m:up",), 2, "map takes items"),
    (("m:up", "a", "--from-file", "list"), 2, "not both"),
    (("nofunction", "a"), 2, "module:function"),
    ((":f", "a"), 2, "module:function"),
    (("m:", "a"), 2, "module:function"),
    (("m:f g", "a"), 2, "module:function"),
    (("../m:up", "a"), 2, "module:function"),
    (("nosuch:f", "a"), 66, "no module 'nosuch'"),
    (("nosuch.sub:f", "a"), 66, "no module 'nosuch'"),
    (("m:nosuch", "a"), 65, "has no 'nosuch'"),
    (("m:number", "a"), 65, "is no function but of type int"),
    (("m:none", "a"), 65, "cannot be called with an item"),
    (("m:two", "a"), 65, "cannot be called with an item"),
    (("broken:f", "a"), 65, "ZeroDivisionError"),
    (("typo:f", "a"), 65, "SyntaxError"),
    (("leaves:f", "a"), 65, "sys.exit(0)"),
    (("dies:f", "a"), 65, "exit status 0"),
    (("needs:f", "a"), 65, "ModuleNotFoundError"),
    (("m:up", "--from-file", "nosuch"), 66, "No such file"),
    (("m:up", "--from-file", "."), 65, "a directory"),
    (("m:up", "--joblog", ".", "a"), 73, "the job log"),
    (("m:up", "--joblog", "no/log", "a"), 73, "the job log"),
    (("m:up", "--results", "m.py", "a"), 73, "the folder of results"),
    (("m:up", "--results", "m.py/x", "a"), 73, "the folder of results"),
    *((("m:up", "--timeout", value, "a"), 2, "--timeout") for value in ("-1", "0", "inf", "nan", "1e308", "9 parsecs")),
    *((("m:up", "--memory", value, "a"), 2, "--memory") for value in ("0", "-1", "", "much", "9999TiB")),
    *((("m:up", "--retries", value, "a"), 2, "--retries") for value in ("-1", "1001", "x")),
    *((("m:up", "--open-files", value, "a"), 2, "--open-files") for value in ("0", "2000000", "x")),
    *(
        (("m:up", "--halt", value, "a"), 2, "--halt")
        for value in ("", "now", "now,fail=0", "soon,fail=0%", "later,fail=1", "now,fail=100%", "now,fail=1,2", "9")
    ),
    (("m:up", "--trace", "t.json", "a"), 2, "--trace"),
    (("m:up", "--frobnicate", "a"), 2, "--frobnicate"),
    (("m:up", "--keep", "a"), 2, "--keep"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "status", "words"), BAD, ids=[" ".join(row[0])[:60] for row in BAD])
def test_bad_input(here, args, status, words):
    sources = {
        "broken": "1 / 0", "typo": "def f(:", "leaves": "import sys; sys.exit(0)", "dies": "import os; os._exit(0)",
        "needs": "import nosuch_either",
    }  # fmt: skip
    for name, source in sources.items():
        (here / f"{name}.py").write_text(source + "\n")
    ended = ptss_mp("map", *args, cwd=here)
    assert (ended.status, ended.out) == (status, ""), ended
    assert len(ended.lines) == 1, ended
    assert words in ended.err
    assert "Traceback" not in ended.err
    assert not {"log", "res"} & set(os.listdir(here)), "half-made"


def test_an_item_without_an_end(here):
    with open("/dev/zero", "rb") as zero, start("map", "m:up", "-", cwd=here, stdin=zero.fileno()) as program:
        ended = finish(program)
    assert (ended.status, ended.out, ended.lines) == (65, "", ["ptss-mp: stdin: item 1 has more than 1 MiB"])


def test_a_file_that_may_not_be_read(here):
    from tests.cli.cli_support import WITHOUT_OVERRIDE

    (here / "list").write_text("a\n")
    (here / "list").chmod(0)
    with start("map", "m:up", "--from-file", "list", cwd=here, by=WITHOUT_OVERRIDE) as program:
        ended = finish(program)
    assert (ended.status, len(ended.lines)) == (77, 1), ended
