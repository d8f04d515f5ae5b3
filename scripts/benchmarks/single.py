"""One measurement, in a process of its own: no pool shall find what another one has left in its parent.

    python -m benchmarks.single MEASURE PEER COUNT WORKERS

Prints its numbers as one line of JSON; whatever ends it otherwise is a failed measurement.
"""

import json
import resource
import signal
import sys

from .measures import MEASURES
from .peers import PEERS
from .prices import PRICES

BARE = "bare means"
CAP_S = 120  # the slowest pool here needs a quarter of it; one that hangs shall not stop the others


def main(measure, peer, count, workers):
    signal.alarm(CAP_S)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # jobs crash here
    asked = MEASURES[measure]
    if peer == BARE:
        numbers = asked.bare(int(count), int(workers))
    else:
        numbers = asked.run(PEERS.get(peer) or PRICES[peer], int(count), int(workers))
    print(json.dumps(numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
