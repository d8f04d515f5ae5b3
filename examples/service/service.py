"""An asyncio service that stops the work when its client hangs up.

    python examples/service/service.py [PORT]

A request is a line with the number of bytes, and the bytes; the answer is the
picture made small, or a line that begins with "refused: ".
"""

import asyncio
import contextlib
import sys

from thumbs import render

from ptss_mp import Executor, MemoryLimitExceeded, QueueFull, TaskTimeout, WorkerCrashed


async def handle(pool, reader, writer):
    try:
        picture = await reader.readexactly(int(await reader.readline()))
        job = asyncio.wrap_future(pool.submit(render, picture))
        hung_up = asyncio.ensure_future(reader.read())  # ends when the client closes
        await asyncio.wait({job, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            job.cancel()  # kills the process that works on it
            return
        writer.write(job.result())
    except (TaskTimeout, MemoryLimitExceeded, WorkerCrashed, QueueFull) as e:
        reason = str(e).splitlines()[0]  # the rest is the stack: not for strangers
        writer.write(f"refused: {reason}\n".encode())
    finally:
        writer.close()


async def main(port):
    with Executor(max_workers=4, preload=["thumbs"], max_pending=1000) as ex:
        pool = ex.options(timeout=5, deadline=10, memory="512MiB")  # 5 s of work, 10 s with the queue
        server = await asyncio.start_server(lambda r, w: handle(pool, r, w), "127.0.0.1", port)
        print("listening on port", server.sockets[0].getsockname()[1], flush=True)
        async with server:
            await server.serve_forever()


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080))
