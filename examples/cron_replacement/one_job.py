"""One job at time X, by deadline Y, with priority Z, after A and B, only if tokens allow: and the proof that it was so.

    python examples/cron_replacement/one_job.py

The tape drive is a token of the pool: while another job holds it, the job
waits, whatever its time and its priority, and jobs that need no tape pass it.
"""

import time
from datetime import UTC, datetime, timedelta

from ptss_mp import Executor


def prepare(what, seconds):
    time.sleep(seconds)
    return f"{what} is ready"


def use_tape(seconds):
    time.sleep(seconds)


def restore(*parts):
    return f"restored, for {' and '.join(parts)}"


def main():
    with Executor(max_workers=3, resources={"tape": 1}) as ex:
        now = datetime.now(UTC)
        at, by = now + timedelta(seconds=0.5), now + timedelta(seconds=20)

        other = ex.options(name="other", resources={"tape": 1}).submit(use_tape, 1.2)
        a = ex.options(name="A").submit(prepare, "A", 0.2)
        b = ex.options(name="B").submit(prepare, "B", 0.8)
        late = {"start_time": at, "deadline": by, "after": [a, b], "resources": {"tape": 1}}
        job = ex.options(name="restore", priority=10, **late).submit(restore, a, b)
        less = ex.options(name="less important", priority=1, **late).submit(restore, a, b)

        outcome = job.outcome()
        ends = {future.outcome().name: future.outcome().finished for future in (a, b, other)}
        assert outcome.started >= at, "not before its time"
        assert all(outcome.started >= end for end in ends.values()), "not before A, B and the tape"
        assert outcome.finished <= by, "by its deadline"
        assert less.outcome().started >= outcome.finished, "the more important one has the tape first"
        print(f"{outcome.name}: {outcome.result()}")
        for what, instant in (("its time", at), *((f"end of {name}", end) for name, end in ends.items())):
            print(f"  started {(outcome.started - instant).total_seconds():.3f} s after {what}")
        print(f"  finished {(by - outcome.finished).total_seconds():.1f} s before its deadline, and its story is:")
        for event in ex.story(job):
            print(f"  {(event.at - now).total_seconds():7.3f} s {event.what} {event.detail}")


if __name__ == "__main__":
    main()
