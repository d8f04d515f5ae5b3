"""The asyncio service: it answers, refuses what crashes or hangs, and stops what nobody waits for."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

from tests.cli.cli_support import CAP_S, REPOSITORY, Bell

SERVICE = REPOSITORY / "examples" / "service" / "service.py"


async def ask(port: int, picture: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"%d\n%s" % (len(picture), picture))
    answer = await reader.read()
    writer.close()
    return answer


async def ask_and_hang_up(port: int, bell: Bell) -> float:
    """Ask for something endless, hang up once it runs; return how long its process lived on, in seconds."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    picture = b"pid " + os.fsencode(bell.path)
    writer.write(b"%d\n%s" % (len(picture), picture))
    pid = int(await asyncio.to_thread(bell.wait))
    pidfd = os.pidfd_open(pid)
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, gone.set)
    began = time.monotonic()
    writer.close()
    await gone.wait()
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)
    return time.monotonic() - began


async def strangers(port: int, bell: Bell) -> None:
    good = b"a picture " * 100
    small, crashed, burst, hung, lived_on, *rest = await asyncio.gather(
        ask(port, good),
        ask(port, b"crash"),
        ask(port, b"bomb"),
        ask(port, b"hang"),
        ask_and_hang_up(port, bell),
        *(ask(port, b"%d" % number) for number in range(50)),
    )
    assert zlib.decompress(small) == good
    assert crashed.startswith(b"refused: job 'render': its worker (pid ")
    assert b"killed by SIGSEGV" in crashed
    assert burst.startswith(b"refused: job 'render': held ")
    assert burst.endswith(b"allowed are 512.0 MiB (memory); it was killed\n")
    assert hung.startswith(b"refused: job 'render': ran 5.")
    assert hung.endswith(b"(timeout); it was killed\n")
    assert lived_on < 4.0, "it was not its timeout that ended it"
    assert [zlib.decompress(answer) for answer in rest] == [b"%d" % number for number in range(50)]


def test_it_serves_strangers_and_ends_by_ctrl_c(tmp_path: Path):
    bell = Bell(tmp_path)
    service = subprocess.Popen(
        [sys.executable, SERVICE, "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    try:
        assert service.stdout
        port = int(service.stdout.readline().rpartition(" ")[2])
        asyncio.run(asyncio.wait_for(strangers(port, bell), CAP_S))
        service.send_signal(signal.SIGINT)
        _, err = service.communicate(timeout=CAP_S)
        assert (service.returncode, err) == (0, "")
    finally:
        bell.close()
        service.kill()
        service.communicate(timeout=CAP_S)
