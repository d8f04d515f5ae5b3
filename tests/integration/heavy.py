"""A module that takes much memory when it is imported, as torch does: 300 MiB, or what the environment says."""

from __future__ import annotations

import os

import hogs

BALLAST = hogs.touched(int(os.environ.get("HEAVY_MIB", "300")))
