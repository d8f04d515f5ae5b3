"""Jobs one after another under a journal, each waited for: as many commits as jobs, and more.

python commits.py FOLDER JOBS
"""

from __future__ import annotations

import os
import sys
import time

from tests.journal.graph import note, step


def run(folder: str, jobs: int) -> None:
    from ptss_mp import Executor, JournalError

    log = os.path.join(folder, "log")
    journal = os.path.join(folder, "journal.db")
    with Executor(max_workers=1, journal=journal, resume=True, spares=0) as ex:
        for number in range(jobs):
            while True:
                try:
                    outcome = ex.submit(step, number, log).outcome()
                    break
                except JournalError:  # nothing can be written just now
                    time.sleep(0.02)
            note(log, f"t {number} {outcome.status} {int(outcome.resumed)} {outcome.result() if outcome.ok else '-'}")


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
