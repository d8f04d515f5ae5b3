"""A module that takes 300 MiB when it is imported, as torch does."""

from __future__ import annotations

import hogs

BALLAST = hogs.touched(300)
