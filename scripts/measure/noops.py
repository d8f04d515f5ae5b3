"""Jobs of measurements that do next to nothing."""

import time


def nothing(_number):
    """Do nothing."""


def ten_ms(_number):
    """Take ten milliseconds."""
    time.sleep(0.01)
