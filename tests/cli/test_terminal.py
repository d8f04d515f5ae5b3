"""On a terminal nothing that a job or a file says does anything but be seen; elsewhere its bytes go through."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.cli.cli_support import CAP_S, PROGRAM, REPOSITORY, jobs_file, on_a_terminal

# clear the screen, colour, title, bell, overwrite the line, backspace, C1 CSI, bidi, isolates, a line separator, DEL
EVIL = "\x1b[2J\x1b[31m\x1b]0;title\x07\rover\b\x9b31m\u202egnp\u202c\u2066x\u2069\u2028\x7f\x00end"
SEEN = r"\x1b[2J\x1b[31m\x1b]0;title\x07\rover\x08\x9b31m\u202egnp\u202c\u2066x\u2069\u2028\x7f\x00end"


def harmless(shown: bytes) -> str:
    """Return what a terminal got as text; fail if a character of it does more than stand there."""
    text = shown.decode("utf-8").replace("\r\n", "\n")  # the terminal's own translation of line ends
    bad = [c for c in text if not c.isprintable() and c not in "\n\t"]
    assert not bad, (bad, text)
    return text


def source(*statements):
    return f"EVIL = {EVIL!r}\n" + "\n".join(statements) + "\n"


@pytest.mark.parametrize("args", [(), ("--log-level", "debug"), ("--log-json", "--log-level", "debug")])
@pytest.mark.parametrize("columns", [80, 40])
def test_run(tmp_path, args, columns):
    path = jobs_file(
        tmp_path,
        source(
            "print(EVIL); print(EVIL, file=sys.stderr); os.write(2, b'raw \\x9b \\xff \\x1b\\n')",
            "@task\ndef says(): print(EVIL); print('tab\\tand\\nline'); os.write(1, b'raw \\x9b \\xff \\x1b\\n')",
            "@task\ndef raises(): raise ValueError(EVIL + '\\udcff')",
            "@task\ndef warns():\n    print(EVIL, file=sys.stderr)\n    os._exit(3)",
            "class Odd(Exception): pass\nOdd.__name__ = EVIL.replace(chr(0), str())\n@task\ndef odd(): raise Odd()",
            "@task\ndef waits(raises): ...",
            "@task\ndef logs():\n    import logging\n    logging.getLogger(EVIL).warning(EVIL, stack_info=True)\n"
            "    try: raise ValueError(EVIL)\n    except ValueError: logging.exception(EVIL)",
            "@task(timeout='100ms')\ndef hangs():\n    print(EVIL, file=sys.stderr)\n    while True: pass",
        ),
        "a\x1b[31m.py",
    )
    status, shown = on_a_terminal("run", path, "--no-progress", *args, columns=columns)
    text = harmless(shown)
    assert status == 1
    assert SEEN + "\ntab\tand\nline\nraw \ufffd \ufffd \\x1b\n" in text, text
    if "--log-json" not in args:
        assert f"raises: failed: ValueError: {SEEN}".split(r"\r")[0] in text
        assert text.count(SEEN) >= 4, "at import twice, printed, last words"
        assert r"a\x1b[31m.py:" in text
        assert re.search(r"\d WARNING \\x1b.*end: \\x1b.*end \(job logs\)$", text, re.M), text
        assert text.count("Traceback") == 1, "of the job that logs one"
    else:
        lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"at"')]
        (line,) = (line for line in lines if line.get("traceback"))
        assert (line["job"], line["level"], line["message"]) == ("logs", "ERROR", EVIL)


@pytest.mark.parametrize(
    "args",
    [("check",), ("run", "--dry-run"), ("run", "--only", "x\x1b[31m\u202e"), ("run", "--st\x1b")],
)
def test_other_ways(tmp_path, args):
    path = jobs_file(tmp_path, source("print(EVIL)", "@task\ndef a(): ..."), "a\x1b[31m.py")
    _, shown = on_a_terminal(*args[:1], path, *args[1:])
    text = harmless(shown)
    assert r"\x1b" in text


@pytest.mark.parametrize(
    "statement",
    [
        "raise KeyError(EVIL)",
        "sys.exit(EVIL)",
        "task(name=EVIL)(print)",
        "task(after=EVIL)(print)",
        "task(**{EVIL: 1})(print)",
        "exec(compile('(' + EVIL.replace(chr(0), ''), EVIL.replace(chr(0), ''), 'exec'))",
        "class Odd(Exception): pass\nOdd.__name__ = EVIL.replace(chr(0), str())\nraise Odd(EVIL)",
        "task(args=(__import__('threading').Lock(),), name='x')(print)",
    ],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_bad_file(tmp_path, command, statement):
    status, shown = on_a_terminal(command, jobs_file(tmp_path, source(statement), "b\x1b[31m.py"))
    text = harmless(shown)
    assert status == 65, text
    assert text.count("\n") == 1, text
    assert r"\x1b" in text


def test_doctor():
    for args in ((), ("--json",)):
        for columns in (80, 40):
            status, shown = on_a_terminal("doctor", *args, columns=columns)
            assert status == 0, shown
            text = harmless(shown)
            assert "kernel" in text
            if columns == 80 and not args:  # it is a table: an ordinary finding fits a line
                assert max(len(line) for line in text.splitlines() if sys.executable not in line) <= 80


def test_help():
    for args in (("--help",), ("run", "--help"), ("check", "--help"), ("doctor", "--help"), ("--version",)):
        status, shown = on_a_terminal(*args, columns=40)
        assert status == 0
        assert harmless(shown)


def test_elsewhere_the_bytes_go_through(tmp_path):
    """To a file or a pipe: what the job wrote, but for what is no UTF-8."""
    path = jobs_file(tmp_path, source("@task\ndef says(): sys.stdout.write(EVIL + '\\r\\n')"))
    with open(tmp_path / "out", "wb") as out:
        env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(
            [*PROGRAM, "run", path], stdout=out, stderr=subprocess.PIPE, timeout=CAP_S, env=env, check=True
        )
    assert (tmp_path / "out").read_bytes() == EVIL.encode() + b"\r\n"
    assert b"\x1b" not in done.stderr
