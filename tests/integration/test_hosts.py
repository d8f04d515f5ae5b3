"""Programs that do what programs do: exit, fork, close descriptors, ignore signals, run from anywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipapp

import pytest
from programs import OURS, run, running
from support import CAP_S, lines, wait_for_lines

# ---- the end of the interpreter


PENDING = """
import sys, time, deeds
from ptss_mp import Executor

log = sys.argv[1]
ex = Executor(1)
ex.submit(deeds.nap, 0.2)
futures = [ex.submit(deeds.note, log, i) for i in range(3)]
futures[2].add_done_callback(lambda f: deeds.note(log, f"callback {f.result()}"))
ex.options(start_time="300ms").submit(deeds.note, log, "later")
"""
PENDING_ENDS = {
    "falls off its end": ("", 0),
    "sys.exit": ("sys.exit(5)", 5),
    "raises": ("raise ValueError('mine')", 1),
    "drops it": ("del ex, futures", 0),
    "has it paused": ("ex.pause()", 0),
    "has shut it down": ("ex.shutdown(wait=False)", 0),
}


@pytest.mark.parametrize("end", PENDING_ENDS)
def test_work_that_is_pending_at_the_exit_is_finished(tmp_path, end):
    statement, status = PENDING_ENDS[end]
    log = tmp_path / "log"
    run(tmp_path, PENDING + statement, str(log), status=status)
    assert sorted(lines(log)) == ["0", "1", "2", "callback 2", "later"]


def test_os_exit_leaves_nothing_running(tmp_path):
    source = PENDING + "import os\nex.submit(deeds.nap, 60)\ndeeds.note(log, 'here')\nos._exit(7)"
    run(tmp_path, source, str(tmp_path / "log"), status=7)  # `run` looks for what is left


def test_nothing_can_be_submitted_once_the_interpreter_exits(tmp_path):
    source = """
import atexit, threading, deeds
from ptss_mp import Executor

def attempt(who, ex):
    try:
        ex.submit(deeds.double, 1)
    except RuntimeError as error:
        print(who, error, flush=True)

ex, unused = Executor(1), Executor(1)
atexit.register(attempt, "atexit", ex)
atexit.register(attempt, "unused", unused)
ex.submit(deeds.nap, 0.2).add_done_callback(lambda f: attempt("callback", ex))
"""
    told = "cannot schedule new futures after interpreter shutdown"
    assert run(tmp_path, source) == [f"callback {told}", f"unused {told}", f"atexit {told}"]


# ---- forks of the program


FORK = """
import os, sys, threading, time, warnings, deeds
from ptss_mp import Executor
warnings.simplefilter("ignore")

def child_of(body):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        body()
        sys.stdout.flush()
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_a_fork_refuses_whatever_would_use_the_parents_pool(tmp_path):
    source = FORK + """
ex = Executor(1)
view = ex.options(priority=1)
future = ex.submit(deeds.nap, 0.3)

def body():
    verbs = {
        "submit": lambda: ex.submit(deeds.double, 1), "map": lambda: list(ex.map(deeds.double, [1])),
        "start": ex.start, "pause": ex.pause, "resume": ex.resume, "drain": ex.drain, "join": ex.join,
        "serve": ex.serve, "view": lambda: view.submit(deeds.double, 1), "with": ex.__enter__,
    }
    for name, verb in verbs.items():
        try:
            verb()
        except RuntimeError as error:
            print(name, "fork" in str(error))
    for verb in (ex.shutdown, ex.stop, ex.kill_workers, view.shutdown):
        verb()
    print(ex.state)

print("child", child_of(body))
print(future.result(10), ex.submit(deeds.double, 2).result(10), ex.state)
"""
    told = ["submit", "map", "start", "pause", "resume", "drain", "join", "serve", "view", "with"]
    assert run(tmp_path, source) == [*(f"{name} True" for name in told), "stopped", "child 0", "0.3 4 running"]


def test_a_fork_may_make_or_start_its_own(tmp_path):
    source = FORK + """
import multiprocessing
started, fresh = Executor(1), Executor(1)
started.start()

def body():
    print("fresh", fresh.submit(deeds.double, 4).result(10))
    with Executor(1) as own:
        print("own", own.submit(deeds.double, 5).result(10))

print("child", child_of(body))
process = multiprocessing.get_context("fork").Process(target=body)
process.start()
process.join()
print("process", process.exitcode)
print("parent", fresh.submit(deeds.double, 6).result(10), started.submit(deeds.double, 7).result(10))
"""
    inside = ["fresh 8", "own 10"]
    assert run(tmp_path, source) == [*inside, "child 0", *inside, "process 0", "parent 12 14"]


def test_forks_in_the_midst_of_everything(tmp_path):
    """From a callback and from a busy program; none hangs, none harms the parent's pool."""
    source = FORK + """
ex = Executor(2)
over, ends = threading.Event(), []

def keep_busy():
    while not over.is_set():
        for future in [ex.submit(deeds.double, i) for i in range(200)]:
            future.result()

def body():
    with Executor(1) as own:
        assert own.submit(deeds.double, 5).result(20) == 10

threads = [threading.Thread(target=keep_busy) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(5):
    ends.append(child_of(body))
ex.submit(deeds.double, 1).add_done_callback(lambda f: ends.append(child_of(lambda: os._exit(0))))
while len(ends) < 6:
    time.sleep(0.001)
over.set()
for thread in threads:
    thread.join()
assert ex.join(10)
print(ends, ex.submit(deeds.double, 2).result(10))
"""
    assert run(tmp_path, source) == ["[0, 0, 0, 0, 0, 0] 4"]


# ---- signals


SERVED = """
import sys, signal, deeds
from ptss_mp import Executor

log, how = sys.argv[1:]
if how == "ignored":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
ex = Executor(1)
future = ex.submit(deeds.gated, log, log + ".gate", 1)
if how == "serve":
    status = ex.serve()
    print(future.outcome().status, flush=True)
    sys.exit(status)
with ex:
    print(future.outcome().status, flush=True)
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def served(tmp_path):
    """Run SERVED in a group of its own; when its job runs, send it a signal."""
    os.mkfifo(tmp_path / "log.gate")
    (tmp_path / "program.py").write_text(SERVED)

    def begin(how, *before):
        command = [*before, sys.executable, str(tmp_path / "program.py"), str(tmp_path / "log"), how]
        return running(tmp_path, command, start_new_session=True)

    return begin


def open_gate(tmp_path):
    with open(tmp_path / "log.gate", "wb") as gate:
        gate.write(b".")


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("how", ["serve", "ignored"])
def test_a_signal_to_the_whole_group_reaches_the_program_alone(tmp_path, served, number, how):
    """So a program that serves can give the job its grace, and one that ignores it goes on."""
    with served(how) as program:
        wait_for_lines(tmp_path / "log", 1)
        os.killpg(program.pid, number)
        open_gate(tmp_path)
        out, err = program.communicate(timeout=CAP_S)
    assert (program.returncode, out, err) == (128 + number if how == "serve" else 0, "succeeded\n", "")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_the_group_of_an_ordinary_program_ends_everything(tmp_path, served, number):
    with served("with") as program:
        wait_for_lines(tmp_path / "log", 1)
        os.killpg(program.pid, number)
        out, err = program.communicate(timeout=CAP_S)
    assert (program.returncode, out) == (-number, "")
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)
    assert len(lines(tmp_path / "log")) == 1


def test_under_nohup_a_hangup_is_nothing(tmp_path, served):
    with served("serve", "nohup") as program:
        wait_for_lines(tmp_path / "log", 1)
        os.killpg(program.pid, signal.SIGHUP)
        open_gate(tmp_path)
        out, _ = program.communicate(timeout=CAP_S)
    assert (program.returncode, out) == (0, "succeeded\n")


def test_jobs_of_a_program_under_nohup_die_of_a_hangup(tmp_path):
    source = """
import deeds, signal
from ptss_mp import Executor
with Executor(1) as ex:
    print(ex.submit(deeds.signals).result(10)[0])
    print(ex.submit(deeds.signals_itself, signal.SIGHUP).outcome(10).signal.name)
"""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; it is inherited
    try:
        told = run(tmp_path, source)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert told == ["['SIGPIPE', 'SIGXFSZ']", "SIGHUP"]


HEALTH = """
import os, signal, sys, deeds
from ptss_mp import Executor, WorkerCrashed

def health(ex):
    crash = ex.submit(deeds.crash, "exit 3").outcome(20)
    abort = ex.submit(deeds.crash, "abort").outcome(20)
    late = ex.options(timeout=0.2).submit(deeds.hang, "native", os.devnull).outcome(20)
    return [str(x) for x in (crash.status, crash.exit_code, abort.status, abort.signal.name, late.status)] + [
        f.result(20) for f in [ex.submit(deeds.double, i) for i in range(8)]]

def kill_warden(ex):
    os.kill(ex._pool.warden.process.pid, signal.SIGKILL)
    while ex._pool.wardens < 2:  # what is sent before would die with the old one
        deeds.nap(0.001)

SICK = ["crashed", "3", "crashed", "SIGABRT", "timeout"]
HEALTHY = SICK + [2 * i for i in range(8)]
"""
CONTEXTS = pytest.mark.parametrize("context", ["None", "'spawn'"])


@CONTEXTS
@pytest.mark.parametrize("ignoring", ["signal.SIG_IGN", "lambda *_: None"])
def test_a_host_that_ignores_its_children(tmp_path, context, ignoring):
    source = HEALTH + f"""
signal.signal(signal.SIGCHLD, {ignoring})
with Executor(2, {context}, capture=True) as ex:
    assert health(ex) == HEALTHY, health(ex)
    assert "SIGCHLD" not in ex.submit(deeds.signals).result(20)[0]
    assert ex.submit(deeds.run_true).result(20) == 0
    kill_warden(ex)
    assert health(ex) == HEALTHY
print("over")
"""
    assert run(tmp_path, source) == ["over"]


@CONTEXTS
def test_a_host_that_waits_for_all_children(tmp_path, context):
    source = HEALTH + f"""
import threading, time
over = threading.Event()

def reap():
    while not over.is_set():
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.001)

thread = threading.Thread(target=reap)
thread.start()
with Executor(2, {context}, capture=True) as ex:
    assert health(ex) == HEALTHY, health(ex)
    kill_warden(ex)
    assert health(ex) == HEALTHY, health(ex)
over.set()
thread.join()
print("over")
"""
    assert run(tmp_path, source) == ["over"]


# ---- descriptors, folders, flags


@CONTEXTS
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_without_standard_streams(tmp_path, context, closed):
    source = HEALTH + f"""
with Executor(2, {context}) as ex:
    assert health(ex) == HEALTHY
    ex.submit(print, "teed").result(20)
deeds.note(sys.argv[1], "over")
"""

    def close():
        for fd in closed:
            os.close(fd)

    (tmp_path / "program.py").write_text(source)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "log")]
    with running(tmp_path, command, preexec_fn=close) as process:
        _, err = process.communicate(timeout=CAP_S)
    assert process.returncode == 0, err
    assert lines(tmp_path / "log") == ["over"]


@CONTEXTS
def test_a_daemon(tmp_path, context):
    source = OURS + HEALTH + f"""
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.chdir("/")
os.umask(0)
os.closerange(0, 64)
for _ in range(3):
    os.open(os.devnull, os.O_RDWR)
with Executor(2, {context}) as ex:
    assert health(ex) == HEALTHY
    assert ex.submit(os.getcwd).result(20) == "/"
deeds.note(sys.argv[1], "over")
"""
    run(tmp_path, source, str(tmp_path / "log"))
    wait_for_lines(tmp_path / "log", 1)


@CONTEXTS
def test_a_host_with_thousands_of_descriptors(tmp_path, context):
    """Its workers hold none of them, inheritable or not; numbers beyond 1024 serve as well."""
    source = HEALTH + f"""
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
held = [os.open("/dev/zero", os.O_RDONLY) for _ in range(4000)]
for fd in held[::2]:
    os.set_inheritable(fd, True)
with Executor(2, {context}, capture=True) as ex:
    assert health(ex) == HEALTHY
    assert not [fd for fd, target in ex.submit(deeds.descriptors).result(20).items() if target == "/dev/zero"]
    assert "/dev/zero" not in ex.submit(deeds.descriptors).result(20).values()
print(len(held), "over")
"""
    assert run(tmp_path, source) == ["4000 over"]


@CONTEXTS
def test_in_a_folder_that_is_gone(tmp_path, context):
    source = OURS + HEALTH + f"""
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
with Executor(2, {context}, capture=True) as ex:
    assert health(ex) == HEALTHY
print("over")
"""
    assert run(tmp_path, source) == ["over"]


@CONTEXTS
@pytest.mark.parametrize(
    "flags", [["-S"], ["-I"], ["-O"], ["-OO"], ["-X", "dev"], ["-W", "error"], ["-B", "-s", "-E", "-P"]], ids=" ".join
)
def test_under_flags_of_the_interpreter(tmp_path, context, flags):
    """Workers have the same; nothing is warned of (`run` wants an empty stderr)."""
    source = OURS + HEALTH + f"""
with Executor(2, {context}, capture=True) as ex:
    told = health(ex)
    if told != HEALTHY:
        raise SystemExit(told)
    if ex.submit(deeds.flags).result(20) != deeds.flags():
        raise SystemExit(ex.submit(deeds.flags).result(20))
dropped = Executor(1, {context})
dropped.submit(deeds.double, 1).result(20)
del dropped
print("over")
"""
    assert run(tmp_path, source, flags=flags) == ["over"]


# ---- mains


MAIN = """
from ptss_mp import Executor
{imports}

def square(x):
    return x * x

class Point:
    def __init__(self, x):
        self.x = x

def move(point):
    return Point(point.x + 1)

if __name__ == "__main__":
    for context in (None, "spawn"):
        with Executor(1, context) as ex:
            print(ex.submit(triple, 7).result(20), end=" ")
            print(ex.submit(square, 7).result(20), ex.submit(move, Point(1)).result(20).x)
"""
TOLD = ["21 49 2"] * 2
# how it is called -> (file of the main, arguments)
MAINS = {
    "script": ("tool.py", ["app/tool.py"]),
    "-m submodule": ("tool.py", ["-m", "app.tool"]),
    "-m package": ("__main__.py", ["-m", "app"]),
    "folder": ("__main__.py", ["app"]),
    "zipapp": ("__main__.py", ["app.pyz"]),
}


@pytest.mark.parametrize("how", MAINS)
def test_functions_of_every_kind_of_main(tmp_path, how):
    name, command = MAINS[how]
    package = "app." if command[0] == "-m" else ""
    app = tmp_path / "app"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "other.py").write_text("def triple(x):\n    return 3 * x\n")
    (app / name).write_text(MAIN.format(imports=f"from {package}other import triple"))
    zipapp.create_archive(app, tmp_path / "app.pyz", main=None if name == "__main__.py" else "tool:move")
    with running(tmp_path, [sys.executable, *command]) as process:
        out, err = process.communicate(timeout=CAP_S)
    assert (process.returncode, out.splitlines(), err) == (0, TOLD, "")


def test_a_main_from_standard_input(tmp_path):
    source = "import deeds\nfrom ptss_mp import Executor\nprint(Executor(1).submit(deeds.double, 4).result(20))\n"
    with running(tmp_path, [sys.executable, "-"], stdin=subprocess.PIPE) as process:
        out, err = process.communicate(source, timeout=CAP_S)
    assert (process.returncode, out, err) == (0, "8\n", "")


STOPPED_BY_A_HANDLER = """
import signal
from concurrent.futures import wait
from ptss_mp import Executor
if __name__ == "__main__":
    ex = Executor(2)
    def handler(number, frame):
        ex.stop(0)
    signal.signal(signal.SIGALRM, HANDLER)
    futures = [ex.submit(deeds.nap, 0.01) for _ in range(5_000)]
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    while not all(future.done() for future in futures):
        wait(futures, timeout=0)  # holds thousands of conditions at a time: the signal comes in the midst of it
    ex.shutdown()
    print(ex.state, len({future.outcome().status for future in futures} - {"succeeded", "cancelled", "interrupted"}))
"""


@pytest.mark.parametrize(
    "handler", ["handler", "lambda *_: ex.stop(0)", "lambda *_: ex.shutdown(cancel_futures=True)"]
)
def test_an_end_from_a_signal_handler(tmp_path, handler):
    """Regression: `stop` waited there for the loop, and the loop for what the interrupted thread held."""
    assert run(tmp_path, OURS + "import deeds\n" + STOPPED_BY_A_HANDLER.replace("HANDLER", handler)) == ["stopped 0"]
