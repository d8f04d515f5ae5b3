"""What each guarantee of ptss_mp costs: the same no-op jobs, with what options allow switched on or off."""

import functools

from .peers import PtssMp

DEFAULT = "default options"


def _price(options=None, **executor):
    return functools.partial(PtssMp, executor=executor, options=options)


class Anew(PtssMp):
    """Asks for a view at each job, in the place of one for all."""

    def submit(self, fn, *args, timeout=None, urgent=False):
        return self.pool.options(timeout=30).submit(fn, *args)


PRICES = {
    DEFAULT: _price(),
    "capture=True": _price(capture=True),
    "capture=False": _price(capture=False),
    "timeout=30": _price({"timeout": 30}),
    "timeout=30, options() for each job": Anew,
    "deadline=60": _price({"deadline": 60}),
    "priority=1": _price({"priority": 1}),
    "retries=1": _price({"retries": 1}),
    "memory=1GiB": _price({"memory": "1GiB"}),
    "cpu_time=60": _price({"cpu_time": 60}),
    "open_files=100": _price({"open_files": 100}),
    "processes=8": _price({"processes": 8}),
    "resources={gpu: 1}": _price({"resources": {"gpu": 1}}, resources={"gpu": 1000}),
    "max_tasks_per_child=1000": _price(max_tasks_per_child=1000),
    "fresh=True": _price(fresh=True),
}
SHARES = {"fresh=True": 0.05}  # of the jobs: one of these takes as long as a hundred others
SHARES |= dict.fromkeys(("memory=1GiB", "cpu_time=60", "open_files=100", "processes=8", "resources={gpu: 1}"), 0.1)
