"""`map --results DIR`: a folder for each item, with what it printed and how it ended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import files
from .exits import CommandError
from .items import safe

if TYPE_CHECKING:
    from ..outcome import Outcome

WHAT = "the folder of results"


class Results:
    """A folder with one folder for each item, named after it (`items.safe`).

    In it are `stdout` and `stderr` (the last 64 KiB of each) and `outcome.json`, which comes last: where it is, the
    others are whole.  Equal items have one folder, for the last of them.

    Args:
        path: made if it is not there.

    Attributes:
        lost: why something could not be written, or "".

    Raises:
        CommandError: cannot create.
    """

    def __init__(self, path: str) -> None:
        self._path, self.lost = path, ""
        try:
            os.makedirs(path, exist_ok=True)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(0, "no permission to write there")
        except (OSError, ValueError) as error:
            raise files.cannot(path, WHAT, error) from None

    def ended(self, item: str, outcome: Outcome[Any], line: str) -> None:
        """Write the folder of one item, unless an earlier run has; `line` is what `outcome.json` shall hold."""
        folder = os.path.join(self._path, safe(item))
        try:
            os.makedirs(folder, exist_ok=True)
            told = os.path.join(folder, "outcome.json")
            if os.path.lexists(told):
                if outcome.resumed:
                    return
                os.unlink(told)  # of an earlier run: it speaks of other files
            for name, text in (("stdout", outcome.stdout), ("stderr", outcome.stderr)):
                with open(os.path.join(folder, name), "w", encoding="utf-8", errors="surrogatepass") as file:
                    file.write(text or "")
            files.write_line(told, "the outcome", line)
        except (OSError, CommandError) as error:
            self.lost = self.lost or getattr(error, "strerror", None) or str(error)
