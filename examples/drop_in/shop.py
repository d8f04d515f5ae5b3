"""A stand-in for somebody's package: plain functions, and one article that takes its native library down."""

import ctypes
from decimal import Decimal

CURSED = 1_000  # the article for which the native library reads address 0


def price(item):
    """Return an article's price after a year of small changes: about a millisecond of work."""
    if item == CURSED:
        ctypes.string_at(0)
    amount = Decimal(100 + item)
    for day in range(2_000):
        amount *= Decimal("1.0004") if (item + day) % 3 else Decimal("0.9991")
    return amount.quantize(Decimal("0.01"))
