"""What scripts/bench.py measures, with whom, and how it tells it.

jobs      functions that workers run
peers     one small class per pool, all with the same interface
measures  what is done with a pool, and the numbers that come of it
bare      the same without a pool: pipes, connections, a fork server
prices    what each guarantee of ptss_mp costs: the same jobs under other options
usage     processor time of this process and all below it
single    one measurement, in a process of its own
rounds    all of them, again and again, one after another
report    medians, ratios, tables
"""
