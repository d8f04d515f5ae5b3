"""What jobs log is said by the program's loggers of the same names."""

from __future__ import annotations

import contextlib
import json
import logging
import logging.config
import os
import sys

import pytest
from support import CAP_S, until
from test_pickling import program

CONTEXTS = pytest.mark.parametrize("context", [None, "spawn"])
ROWS = 6  # LOG_FD - CALLS_FD, to look at it in a worker


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept():
    """A handler at the logger `jobs`, which takes INFO and more; nothing goes on to the root."""
    logger, handler = logging.getLogger("jobs"), Kept()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def speak(name: str, *words: str, then: str = "") -> None:
    logger = logging.getLogger(name)
    for word in words:
        logger.debug("not %s", word)
        logger.info("said %s", word, extra={"word": word, "odd": {1, 2}})
    if then == "raise":
        try:
            raise KeyError("inner")
        except KeyError:
            logger.exception("it broke")
    if then == "die":
        os.kill(os.getpid(), 11)


@CONTEXTS
def test_records_arrive_with_all_their_facts(pool, kept, context):
    ex = pool(1, context)
    ex.options(name="first").submit(speak, "jobs.deep.er", "hello").result(CAP_S)
    ex.submit(speak, "jobs", then="raise").result(CAP_S)
    ex.drain(CAP_S)
    first, second = kept.records
    assert (first.name, first.levelname, first.getMessage()) == ("jobs.deep.er", "INFO", "said hello")
    assert (first.ptss_job, first.word, first.odd) == ("first", "hello", "{1, 2}")
    assert (first.funcName, first.filename, first.module) == ("speak", "test_logging.py", "test_logging")
    assert first.process != os.getpid()
    assert abs(first.created - second.created) < 60
    assert (second.ptss_job, second.levelno) == ("speak", logging.ERROR)
    assert "KeyError: 'inner'" in logging.Formatter().format(second)
    assert "jobs.deep.er" not in logging.root.manager.loggerDict, "no job makes a logger here"


@CONTEXTS
def test_what_was_logged_before_a_crash_is_not_lost(pool, kept, context):
    ex = pool(1, context)
    outcome = ex.submit(speak, "jobs", "last", "words", then="die").outcome(CAP_S)
    assert outcome.status == "crashed"
    ex.drain(CAP_S)
    assert [r.getMessage() for r in kept.records] == ["said last", "said words"]
    assert {r.ptss_job for r in kept.records} == {"speak"}
    assert outcome.stderr == "", "a record is no output"


def log_if(n: int, which: int) -> int:
    if n == which:
        logging.getLogger("jobs").info("here is %d", n)
    return n


def test_a_record_is_of_the_job_that_logged_it(pool, kept):
    """Functions that were silent a hundred times are looked at once per flush: this is not what decides."""
    ex = pool(1)
    for n in range(200):
        ex.options(name=f"job {n}").submit(log_if, n, -1)
    futures = [ex.options(name=f"job {n}").submit(log_if, n, 25) for n in range(50)]
    assert [f.result(CAP_S) for f in futures] == list(range(50))
    ex.drain(CAP_S)
    assert [(r.getMessage(), r.ptss_job) for r in kept.records] == [("here is 25", "job 25")]


def late_import() -> None:
    import json.tool  # noqa: F401 - something that logging does not need
    import logging.handlers

    logging.getLogger("jobs").warning("late")


def test_a_job_that_imports_logging_itself(pool, kept):
    pool(1, "spawn").submit(late_import).result(CAP_S)
    until(lambda: kept.records, "a record")
    assert kept.records[0].getMessage() == "late"


def test_records_are_within_their_bounds(pool, kept):
    ex = pool(1)
    ex.submit(speak, "jobs", "x" * (1 << 20)).result(CAP_S)
    ex.submit(log_much, 30_000).result(CAP_S)
    ex.drain(CAP_S)
    assert len(kept.records[0].getMessage()) == 60 << 10
    assert 100 < len(kept.records) < 30_000, "the last MiB of a job's records"
    assert kept.records[-1].getMessage() == "number 29999"


def log_much(count: int) -> None:
    for n in range(count):
        logging.getLogger("jobs").info("number %d", n)


HOSTILE = [
    b"no json\n",
    b"[1, 2]\n",
    b'{"name": 5, "msg": "m", "levelno": 30, "extra": {}, "created": 1}\n',
    b'{"name": "jobs", "msg": "m", "levelno": "30", "extra": {}, "created": 1}\n',
    b'{"name": "jobs", "msg": "m", "levelno": 30, "extra": 7, "created": 1}\n',
    b'{"name": "jobs", "msg": "m", "levelno": 30, "extra": {}, "created": "x"}\n',
    b'{"name": "jobs", "msg": "m", "levelno": 30, "extra": {}}\n',
    b"[" * 100_000 + b"\n",
    b"\xff\xfe\n",
    b'{"name": "jobs", "msg": "half',
]


def write_raw(lines: list[bytes]) -> None:
    for line in lines:
        os.write(9, line)
    logging.getLogger("jobs").info("")


def test_lines_that_are_no_records_are_passed_over(pool, kept):
    ex = pool(1)
    ex.submit(write_raw, HOSTILE).result(CAP_S)
    ex.submit(speak, "jobs", "after").result(CAP_S)
    ex.drain(CAP_S)
    assert [r.getMessage() for r in kept.records] == ["said after"]


FACTS = {
    "name": "jobs", "msg": "forged", "levelno": 30, "levelname": "WARNING", "pathname": "/a/b.py", "lineno": 1,
    "funcName": "f", "created": 1.0, "thread": 1, "threadName": "t", "process": 1, "processName": "p",
    "exc_text": None, "stack_info": None, "extra": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "heard"),
    [
        ({}, True),
        ({"pathname": None}, True),
        ({"extra": {"getMessage": 1}}, True),
        ({"levelno": 10**300}, True),
        ({"created": 10**400}, False),
        ({"created": 1e300}, False),
        ({"created": float("nan")}, False),
    ],
)
def test_a_forged_record_silences_none_that_follows(pool, kept, facts, heard):
    """Regression: one without a path, or with an instant that is no float, ended the reading of its attempt."""
    line = json.dumps(FACTS | facts).encode() + b"\n"
    ex = pool(1)
    ex.submit(write_raw, [line]).result(CAP_S)
    ex.drain(CAP_S)
    assert [r.getMessage() for r in kept.records] == ["forged"] * heard + [""]
    assert "" in logging.Formatter("%(asctime)s %(module)s").format(kept.records[0])
    assert all(r.levelno <= 10_000 for r in kept.records), "a logger keeps what it was asked of each level"


class Mute:
    def __repr__(self) -> str:
        raise ZeroDivisionError


def speak_with(extra: str) -> None:
    extras = {"number": {"n": 10**5000}, "mute": {"n": Mute()}, "no name": {1: 2, "n": 3}, "text": {"n": "x" * 10**6}}
    logging.getLogger("jobs").info("said", extra=extras[extra])  # type: ignore[arg-type]


@pytest.mark.parametrize("extra", ["number", "mute", "no name", "text"])
def test_an_extra_that_cannot_be_shown_does_not_cost_the_record(pool, kept, extra):
    ex = pool(1)
    outcome = ex.submit(speak_with, extra).outcome(CAP_S)
    ex.drain(CAP_S)
    assert [r.getMessage() for r in kept.records] == ["said"]
    assert kept.records[0].n
    assert outcome.stderr == ""


def speak_wide(char: str) -> None:
    extra = {f"e{n}": char * 100_000 for n in range(40)}
    try:
        raise ValueError(char * 100_000)
    except ValueError:
        logging.getLogger("jobs").exception(char * 100_000, extra=extra)


@pytest.mark.parametrize("char", ["x", "\u010d", "\U0001f600", "\x01"])
def test_a_record_of_many_long_texts_is_shortened_not_lost(pool, kept, char):
    """Regression: a line longer than what is read at once was gone, and nobody said so."""
    ex = pool(1)
    ex.submit(speak_wide, char).result(CAP_S)
    ex.drain(CAP_S)
    (record,) = kept.records
    assert record.getMessage().startswith(char * 1000)
    assert record.e0.startswith(char * 1000)


def set_up(how: str) -> None:
    if how == "basicConfig":
        logging.basicConfig(force=True, level=logging.CRITICAL)
    elif how == "dictConfig":
        handler = {"class": "logging.StreamHandler"}
        logging.config.dictConfig({"version": 1, "handlers": {"h": handler}, "root": {"handlers": ["h"]}})
    elif how == "disable":
        logging.disable(logging.CRITICAL)
    else:
        logging.shutdown()


@CONTEXTS
@pytest.mark.parametrize("how", ["basicConfig", "dictConfig", "disable", "shutdown"])
def test_a_job_that_sets_logging_up_does_not_silence_the_next(pool, kept, context, how):
    ex = pool(1, context)
    ex.submit(speak, "jobs", "first").result(CAP_S)
    ex.submit(set_up, how).result(CAP_S)
    ex.submit(speak, "jobs", "second").result(CAP_S)
    ex.drain(CAP_S)
    assert [r.getMessage() for r in kept.records] == ["said first", "said second"]


def test_a_handler_that_raises_costs_no_other_record(pool, kept):
    """Regression: what came behind the first such record of an attempt was not said."""

    def picky(record: logging.LogRecord) -> bool:
        if "bad" in record.getMessage():
            raise ZeroDivisionError
        return True

    logging.getLogger("jobs").addFilter(picky)
    logging.getLogger("ptss_mp").setLevel(logging.CRITICAL + 1)  # pytest keeps records, and with them all frames
    try:
        ex = pool(1)
        ex.submit(speak, "jobs", "bad", "good", "bad", "better").result(CAP_S)
        ex.drain(CAP_S)
    finally:
        logging.getLogger("jobs").removeFilter(picky)
        logging.getLogger("ptss_mp").setLevel(logging.NOTSET)
    assert [r.getMessage() for r in kept.records] == ["said good", "said better"]


def test_levels_of_the_program_count_in_the_workers(pool, kept):
    logging.getLogger("jobs.loud").setLevel(logging.ERROR)
    ex = pool(1)
    assert ex.submit(written, "jobs.loud").result(CAP_S) == 0, "not even written"
    assert ex.submit(written, "jobs").result(CAP_S) > 0
    logging.getLogger("jobs.loud").setLevel(logging.NOTSET)


def written(name: str) -> int:
    before = os.lseek(9, 0, 1)
    logging.getLogger(name).info("a line")
    return os.lseek(9, 0, 1) - before


def test_a_filter_of_the_programs_that_raises_ends_nothing(pool, kept):
    """Regression: the loop logged by itself, and ended."""

    def broken(_record: logging.LogRecord) -> bool:
        raise ZeroDivisionError

    logger = logging.getLogger("ptss_mp")
    logger.addFilter(broken)
    logger.setLevel(logging.DEBUG)
    logging.getLogger("jobs").addFilter(broken)
    try:
        with contextlib.redirect_stderr(None):
            ex = pool(1, spares=0)
            ex.submit(speak, "jobs", "x").result(CAP_S)
            assert ex.submit(os.write, 4, b"\xff" * 100).outcome(CAP_S).status == "protocol"
            assert ex.submit(pow, 2, 3).result(CAP_S) == 8
    finally:
        logger.removeFilter(broken)
        logger.setLevel(logging.NOTSET)
        logging.getLogger("jobs").removeFilter(broken)


def loaded() -> bool:
    return "logging" in sys.modules


def test_a_worker_does_not_import_logging_by_itself():
    out, err, code = program(["-c", "import sys; from ptss_mp import Executor\n"
        "if __name__ == '__main__':\n  with Executor(1) as ex: print(ex.submit(eval, "
        "'\"logging\" in __import__(\"sys\").modules').result(30))"])  # fmt: skip
    assert (out, err, code) == ("False\n", "", 0)


PROGRAM = """\
import logging, sys
from ptss_mp import Executor
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(name)s %(message)s %(process)d")
def job(n):
    logging.getLogger("shop").info("item %d", n)
    logging.debug("nothing")
if __name__ == "__main__":
    with Executor(1) as ex:
        list(ex.map(job, range(3)))
"""


@pytest.mark.parametrize("context", ["", "mp_context='spawn'"])
def test_a_program_that_sets_logging_up_at_its_top_reads_each_record_once(tmp_path, context):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("Executor(1)", f"Executor(1, {context})"))
    out, err, code = program([str(file)])
    assert (err, code) == ("", 0)
    lines = out.splitlines()
    assert [line.split()[:4] for line in lines] == [["INFO", "shop", "item", str(n)] for n in range(3)]
