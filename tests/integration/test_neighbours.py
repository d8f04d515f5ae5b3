"""Programs and libraries that take an Executor as they find it: servers, dask, tqdm."""

from __future__ import annotations

import asyncio
import contextlib
import io

import deeds
import pytest
from support import CAP_S, lines, until, wait_gone

from ptss_mp import QueueFull, TaskTimeout, WorkerCrashed

# ---- a service of asyncio that stops the work when its client hangs up


async def handle(pool, work, reader, writer):
    """As in the contract's program: a length, so many bytes, and the answer; or the hang-up."""
    try:
        request = await reader.readexactly(int(await reader.readline()))
        job = asyncio.wrap_future(pool.submit(work, request))
        hung_up = asyncio.ensure_future(reader.read())  # ends when the client closes
        await asyncio.wait({job, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            job.cancel()  # kills the process that works on it
            return
        hung_up.cancel()
        writer.write(job.result())
    except (TaskTimeout, QueueFull) as e:
        writer.write(f"refused: {e}\n".encode())
    finally:
        writer.close()


async def serving(pool, work, client):
    server = await asyncio.start_server(lambda r, w: handle(pool, work, r, w), "127.0.0.1", 0)
    async with server:
        return await asyncio.wait_for(client(*server.sockets[0].getsockname()[:2]), CAP_S)


async def ask(host, port, request):
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"%d\n%s" % (len(request), request))
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def test_a_service_answers_and_refuses(pool):
    view = pool(2, max_pending=100).options(timeout=0.5, deadline=20)

    async def client(host, port):
        answers = await asyncio.gather(*(ask(host, port, b"%d" % n) for n in range(20)))
        assert answers == [b"%d%d" % (n, n) for n in range(20)]
        refused = await ask(host, port, b"hang")
        assert refused.startswith(b"refused: ")
        assert b"0.5" in refused

    asyncio.run(serving(view, deeds.answer, client))


def test_a_client_that_hangs_up_ends_the_work(pool, tmp_path):
    ex, log = pool(1), tmp_path / "log"

    async def client(host, port):
        _, writer = await asyncio.open_connection(host, port)
        request = b"log " + str(log).encode()
        writer.write(b"%d\n%s" % (len(request), request))
        while not lines(log):
            await asyncio.sleep(0.001)
        writer.close()  # nobody is there any more
        await writer.wait_closed()
        while ex.status().unsettled:
            await asyncio.sleep(0.001)
        assert await ask(host, port, b"x") == b"xx"

    asyncio.run(serving(ex, deeds.answer, client))
    wait_gone([int(lines(log)[0])], CAP_S)


# ---- dask


@pytest.fixture
def dask():
    dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'ptss_mp[neighbours]'")
    with dask.config.set({"num_workers": None}):
        yield dask


def test_dask_computes_on_an_executor(pool, dask):
    ex = pool(2)
    double, total = dask.delayed(deeds.double), dask.delayed(deeds.total)
    graph = total(*[double(n) for n in range(30)])
    assert graph.compute(scheduler=ex) == sum(range(0, 60, 2))
    assert dask.compute(graph, double(4), scheduler=ex) == (870, 8)
    with dask.config.set(scheduler=ex.options(timeout=30)):
        assert graph.compute() == 870


def test_a_crash_in_a_dask_graph_is_its_own(pool, dask):
    ex = pool(2)
    double = dask.delayed(deeds.double)
    graph = double(dask.delayed(deeds.crash)("abort"))
    for _ in range(2):
        with pytest.raises(WorkerCrashed, match="SIGABRT"):
            graph.compute(scheduler=ex)
        assert double(2).compute(scheduler=ex) == 4
    with pytest.raises(ValueError, match="no"):
        dask.delayed(deeds.fail)("no").compute(scheduler=ex)
    with pytest.raises(TaskTimeout):
        dask.delayed(deeds.nap)(60).compute(scheduler=ex.options(timeout=0.2))


# ---- tqdm


@pytest.fixture
def tqdm(monkeypatch):
    bar = pytest.importorskip("tqdm", reason="tqdm is not installed: pip install 'ptss_mp[neighbours]'").tqdm
    monkeypatch.setattr(bar, "monitor_interval", 0)  # its thread lives as long as the program
    return bar


def test_tqdm_over_map_and_map_outcomes(pool, tqdm):
    ex, shown = pool(2), io.StringIO()
    assert list(tqdm(ex.map(deeds.double, range(50)), total=50, file=shown)) == list(range(0, 100, 2))
    assert "50/50" in shown.getvalue()
    shown = io.StringIO()
    items = [item for item, out in tqdm(ex.map_outcomes(deeds.double, range(50)), total=50, file=shown) if out.ok]
    assert sorted(items) == list(range(50))
    assert "50/50" in shown.getvalue()


def test_a_bar_as_progress(pool, tqdm):
    ex, shown = pool(2), io.StringIO()
    with tqdm(total=50, file=shown) as bar:
        for _, out in ex.map_outcomes(deeds.double, range(50), progress=bar):
            assert out.ok
        assert bar.n == 50
    with pytest.raises(TypeError, match=r"tqdm\(total=100\)"):
        ex.map_outcomes(deeds.double, range(50), progress=tqdm)
    with contextlib.closing(tqdm(ex.map_outcomes(deeds.double, range(10**9)), file=shown)) as bar:
        next(iter(bar))
    until(lambda: ex.status().unsettled == 0, "the end of what was accepted")
