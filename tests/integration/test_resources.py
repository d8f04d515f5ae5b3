"""Tokens and environments with real processes: who holds what is seen from outside, by locks that end with them."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
from concurrent.futures import wait
from datetime import timedelta

import deeds
import pytest
from programs import run
from support import CAP_S, beside_healthy, lines, until, wait_for_lines

from ptss_mp import DeadlineMissed, InvalidOption, Options
from ptss_mp.shell import memfree
from ptss_mp.shell.memfree import MemoryGate

GPU = {"gpu": 1}
CUDA = {"CUDA_VISIBLE_DEVICES": "{gpu}"}

# Program 5 of the contract, as written there.
PROGRAM = '''
from ptss_mp import Executor, current

def load(path):
    from mymodel import Model                  # imported in the worker, after its GPU is chosen
    current().state["model"] = Model(path)

def answer(question):
    return current().state["model"].run(question)

if __name__ == "__main__":
    with Executor(max_workers=2, mp_context="spawn", initializer=load, initargs=("model.bin",),
                  resources={"gpu": ["0", "1"]}) as ex:
        gpu = ex.options(resources={"gpu": 1}, env={"CUDA_VISIBLE_DEVICES": "{gpu}"}, timeout="2m")
        with open("questions.txt") as lines:
            for question, out in gpu.map_outcomes(answer, lines, ordered=True):
                print(question.strip(), "->", out.result() if out.ok else out.error)
'''
# A model that chooses its device when it is imported, as torch does; and takes a moment for each question.
MODEL = '''
import os, time
DEVICE = os.environ["CUDA_VISIBLE_DEVICES"]
class Model:
    def __init__(self, path):
        self.path = path
        with open("loaded", "a") as out:
            out.write(DEVICE + chr(10))
    def run(self, question):
        time.sleep(0.02)
        return f"{self.path} on {DEVICE} = {os.environ['CUDA_VISIBLE_DEVICES']}: {len(question)}"
'''


def test_a_model_per_worker_a_gpu_per_job(tmp_path):
    (tmp_path / "mymodel.py").write_text(MODEL)
    (tmp_path / "questions.txt").write_text("".join(f"question {i}\n" for i in range(20)))
    answers = [re.fullmatch(r"question (\d+) -> model.bin on ([01]) = ([01]): (\d+)", line)
               for line in run(tmp_path, PROGRAM)]  # fmt: skip
    assert [int(a[1]) for a in answers] == list(range(20))
    assert all(a[2] == a[3] for a in answers)
    assert {a[2] for a in answers} == {"0", "1"}, "both were used"
    assert sorted(lines(tmp_path / "loaded")) == ["0", "1"], "each worker kept its GPU, and loaded once"


def test_a_unit_is_never_shared(pool, tmp_path):
    ex = pool(4, resources={"gpu": ["0", "3"]})
    gpu = ex.options(resources=GPU)
    futures = [gpu.submit(deeds.hold, str(tmp_path)) for _ in range(60)]
    futures += [ex.options(resources={"gpu": 2}).submit(deeds.hold, str(tmp_path)) for _ in range(5)]
    held = [f.result(CAP_S) for f in futures]
    assert {unit for tokens in held[:60] for unit in tokens["gpu"]} == {"0", "3"}
    assert held[60:] == [{"gpu": ("0", "3")}] * 5


def test_others_pass_while_a_job_lacks_tokens(pool, gate):
    ex = pool(2, resources=GPU)
    gpu = ex.options(resources=GPU)
    first, second = gpu.submit(deeds.gate, gate.path), gpu.submit(deeds.double, 2)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    assert not second.done()
    assert ex.status().ready == 1
    assert ("waits", "for gpu") in [(event.what, event.detail) for event in ex.story(second)]
    gate.open()
    assert second.result(CAP_S) == 4
    assert "worker 1, holds gpu 0" in [event.detail for event in ex.story(first)]


@pytest.mark.parametrize("what", ["abort", "exit", "raise", "hang", "cancel"])
@pytest.mark.parametrize("env", [None, CUDA], ids=["plain", "env"])
def test_tokens_come_free_when_the_process_is_dead(pool, tmp_path, what, env):
    """Each job locks a file for its unit; the next would find it locked if the unit came too early."""
    ex = pool(2, resources=GPU)
    gpu = ex.options(resources=GPU, env=env)
    bell = tmp_path / "bell"
    how = gpu.options(timeout=0.5) if what == "hang" else gpu
    ends = how.submit(deeds.hold, str(tmp_path), "hang" if what == "cancel" else what, str(bell), heavy=True)
    after = [gpu.submit(deeds.hold, str(tmp_path)) for _ in range(3)]
    wait_for_lines(bell, 1)
    if what == "cancel":
        assert ends.cancel()
    assert [f.result(CAP_S) for f in after] == [{"gpu": ("0",)}] * 3
    statuses = {"abort": "crashed", "exit": "crashed", "raise": "failed", "hang": "timeout", "cancel": "cancelled"}
    assert ends.outcome().status == statuses[what]


@pytest.mark.parametrize("what", ["abort", "cancel", "timeout"])
def test_tokens_come_free_when_the_tree_is_dead(pool, tmp_path, what):
    """What a job has started may hold its GPU too, and takes longer to die than the worker."""
    ex = pool(2, resources=GPU)
    gpu, bell = ex.options(resources=GPU), tmp_path / "bell"
    how = gpu.options(timeout=2) if what == "timeout" else gpu
    ends = how.submit(deeds.hold_by_child, str(tmp_path), "abort" if what == "abort" else "hang", str(bell))
    after = gpu.submit(deeds.hold, str(tmp_path))
    wait_for_lines(bell, 1)
    if what == "cancel":
        assert ends.cancel()
    assert after.result(CAP_S) == {"gpu": ("0",)}
    assert ends.done()


def test_a_crash_concerns_nobody_else(pool, tmp_path):
    ex = pool(2, resources=GPU)
    gpu = ex.options(resources=GPU, env=CUDA)
    _, outcome = beside_healthy(ex, lambda: gpu.submit(deeds.hold, str(tmp_path), "abort"))
    assert outcome.status == "crashed"


def test_the_wardens_death_loses_no_token(pool, tmp_path):
    ex = pool(2, resources={"gpu": 2})
    gpu, bell = ex.options(resources=GPU, env=CUDA), tmp_path / "bell"
    running = [gpu.submit(deeds.hold, str(tmp_path), "hang", str(bell)) for _ in range(2)]
    wait_for_lines(bell, 2)
    os.kill(ex._pool.warden.process.pid, signal.SIGKILL)
    assert [f.outcome(CAP_S).status for f in running] == ["crashed", "crashed"]
    assert ex.options(resources={"gpu": 2}).submit(deeds.hold, str(tmp_path)).result(CAP_S) == {"gpu": ("0", "1")}


def test_killed_from_outside_again_and_again(pool, tmp_path):
    """No unit is shared, lost or left behind, whoever dies when; seed 15."""
    rng = random.Random(15)
    ex = pool(4, resources={"gpu": 2})
    gpu, bell = ex.options(resources=GPU, env=CUDA), tmp_path / "bell"
    futures = [gpu.submit(deeds.hold, str(tmp_path), bell=str(bell), heavy=True) for _ in range(60)]
    for _ in range(15):
        began = len(lines(bell))
        until(lambda seen=began: len(lines(bell)) > seen or all(f.done() for f in futures), "another job")
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice([channel.pid for channel in ex._pool.channels.values()]), signal.SIGKILL)
    statuses = {f.outcome(CAP_S).status for f in futures}
    assert statuses <= {"succeeded", "crashed"}, [f.outcome().error for f in futures if f.outcome().status == "failed"]
    assert ex.options(resources={"gpu": 2}).submit(deeds.hold, str(tmp_path)).result(CAP_S) == {"gpu": ("0", "1")}


def test_each_attempt_takes_its_tokens_anew(pool, tmp_path):
    ex = pool(2, resources=GPU)
    gpu = ex.options(resources=GPU, retries=1)
    twice = gpu.submit(deeds.hold, str(tmp_path), "abort")
    between = gpu.submit(deeds.hold, str(tmp_path))
    assert between.result(CAP_S) == {"gpu": ("0",)}
    assert (twice.outcome(CAP_S).status, twice.outcome().attempts) == ("crashed", 2)


def test_a_deadline_ends_one_that_lacks_tokens(pool, gate):
    ex = pool(2, resources=GPU)
    gpu = ex.options(resources=GPU)
    first = gpu.submit(deeds.gate, gate.path)
    until(first.running, "it holds all tokens: else the one with a deadline is before it")
    late = gpu.options(deadline=timedelta(milliseconds=100)).submit(deeds.double, 1)
    with pytest.raises(DeadlineMissed):
        late.result(CAP_S)
    assert late.outcome().started is None
    gate.open()


def test_cancel_and_shutdown_of_those_who_lack(pool, gate):
    ex = pool(2, resources=GPU)
    gpu = ex.options(resources=GPU)
    first = gpu.submit(deeds.gate, gate.path)
    rest = [gpu.submit(deeds.double, i) for i in range(4)]
    until(first.running, "the first runs")
    assert rest[0].cancel()
    ex.shutdown(wait=False, cancel_futures=True)
    wait(rest, CAP_S)
    assert all(f.cancelled() for f in rest)
    gate.open()
    ex.shutdown()
    assert first.outcome().ok


# ---- Environments.


@pytest.mark.parametrize("context", [None, "spawn"])
def test_initializer_and_job_find_the_variables(pool, context):
    ex = pool(2, context, deeds.note_variable, ("COLOUR",))
    red = ex.options(env={"COLOUR": "{{red}}"})
    pid, was, noted = red.submit(deeds.variable, "COLOUR", "green").result(CAP_S)
    assert (was, noted) == ("{red}", "{red}")
    assert red.submit(deeds.variable, "COLOUR").result(CAP_S) == (pid, "{red}", "{red}"), "set back, and reused"
    assert red.submit(deeds.child_variable, "COLOUR").result(CAP_S) == "{red}"
    other, was, noted = ex.options(env={"COLOUR": "blue"}).submit(deeds.variable, "COLOUR").result(CAP_S)
    assert (other != pid, was, noted) == (True, "blue", "blue")
    plain, was, noted = ex.submit(deeds.variable, "COLOUR").result(CAP_S)
    assert (plain not in (pid, other), was, noted) == (True, None, None)


def test_environments_that_take_turns_at_one_worker(pool):
    ex = pool(1, spares=0)
    views = [ex, *(ex.options(env={"COLOUR": colour}) for colour in ("red", "blue"))]
    futures = [view.submit(deeds.variable, "COLOUR") for _ in range(3) for view in views]
    assert [f.result(CAP_S)[1] for f in futures] == [None, "red", "blue"] * 3


def test_fresh_in_an_environment(pool):
    ex = pool(2)
    red = ex.options(env={"COLOUR": "red"}, fresh=True)
    found = [f.result(CAP_S)[:2] for f in [red.submit(deeds.variable, "COLOUR") for _ in range(4)]]
    assert {was for _, was in found} == {"red"}
    assert len({pid for pid, _ in found}) == 4


def test_units_and_amounts_in_an_environment(pool):
    ex = pool(1, resources={"gpu": ["2", "7"], "space": "1KiB"})
    view = ex.options(resources={"gpu": 2, "space": 512}, env={"WHAT": "gpus {gpu}, {space} bytes"})
    assert view.submit(deeds.variable, "WHAT").result(CAP_S)[1] == "gpus 2,7, 512 bytes"


# ---- What can never fit.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resources": {"gpu": 3}}, "needs 3 of 'gpu', and this pool has 2"),
        ({"resources": {"gpuu": 1}}, "did you mean 'gpu'?"),
        ({"env": CUDA}, "the job does not hold"),
        ({"memory": "2GiB"}, "needs 2147483648 of 'memory', and this pool has 1073741824"),
    ],
)
def test_what_can_never_fit_is_refused_at_submit(pool, options, words):
    ex = pool(1, resources={"gpu": 2, "memory": "1GiB"})
    view = ex.options(**options)
    for submit in (lambda: view.submit(deeds.double, 1), lambda: list(view.map(deeds.double, [1]))):
        with pytest.raises(InvalidOption) as refused:
            submit()
        assert words in str(refused.value)
    assert ex.status().unsettled == 0
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2


def test_a_pool_without_tokens_says_so(pool):
    ex = pool(1, options=Options(resources=GPU))
    with pytest.raises(InvalidOption, match="no token 'gpu' \\(it has none"):
        ex.submit(deeds.double, 1)
    assert ex.options(resources=None).submit(deeds.double, 1).result(CAP_S) == 2


# ---- Memory.


def test_a_memory_limit_holds_as_much_of_the_token(pool, gate):
    ex = pool(3, resources={"memory": "1GiB"})
    half = ex.options(memory="600MiB")
    first = half.submit(deeds.gate, gate.path)
    assert ex.options(memory="400MiB").submit(deeds.what_i_hold).result(CAP_S) == {"memory": 400 << 20}
    second, third = half.submit(deeds.double, 2), ex.options(memory="1MiB").submit(deeds.double, 3)
    assert ex.submit(deeds.double, 1).result(CAP_S) == 2
    assert not second.done()
    assert not third.done(), "it needs what the second lacks"
    gate.open()
    assert second.result(CAP_S) == 4
    assert first.outcome().ok


def test_a_job_without_tokens_holds_nothing(pool):
    assert pool(1, resources=GPU).submit(deeds.what_i_hold).result(CAP_S) == {}


def test_no_job_starts_while_memory_is_short(pool, gate, monkeypatch):
    there = {"bytes": 0}
    monkeypatch.setattr(memfree, "available_bytes", lambda: there["bytes"])
    ex = pool(2)
    ex._pool.gate = MemoryGate(100)
    there["bytes"] = 100
    running = ex.submit(deeds.gate, gate.path)
    until(running.running, "the first runs")
    there["bytes"] = 99
    waits = until(lambda: (ex.submit(deeds.double, 1), ex._pool.gate.short)[1] and ex.submit(deeds.double, 2), "a look")
    gate.open()
    assert running.outcome(CAP_S).ok, "what runs goes on"
    assert not waits.done()
    assert ex.status().ready > 0
    there["bytes"] = 100
    assert waits.result(CAP_S) == 4
