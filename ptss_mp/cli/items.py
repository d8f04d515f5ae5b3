"""The items of `map`: arguments, or the lines of a file or of stdin, read when there is room for them."""

from __future__ import annotations

import os
import select
import stat
from collections import deque
from collections.abc import Sequence

from .exits import CommandError, Exit

READ_BYTES = 64 << 10  # at a time: so many items at most wait here
ITEM_BYTES_MAX = 1 << 20  # a longer line is none: whoever gives us /dev/zero is told so
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,=+@:")
NAME_CHARS_MAX = 240  # a name has 255 bytes at most


class Items:
    """What is still to be taken.

    Args:
        given: items that are there already.
        fd: where more come from, None: nowhere.  Closed by `close`, unless it is stdin.
        name: of that, for errors.
        end: of an item: a newline or NUL.

    Attributes:
        fd: where more come from; None once that has ended.
    """

    def __init__(self, given: Sequence[str] = (), fd: int | None = None, name: str = "", end: bytes = b"\n") -> None:
        self.fd = fd
        self._name, self._end = name, end
        self._there: deque[bytes | str] = deque(given)
        self._part = bytearray()
        self._number = 0

    def take(self) -> str | None:
        """Return the next item; None if none is there: none yet, or, once `over`, none any more.

        Never waits: what is read was found to be ready.

        Raises:
            CommandError: it cannot be read, or an item is too long.
        """
        while not self._there and self.fd is not None:
            if not select.select([self.fd], [], [], 0)[0]:
                return None
            self._read()
        if not self._there:
            return None
        self._number += 1
        item = self._there.popleft()
        return item if isinstance(item, str) else os.fsdecode(item)

    @property
    def over(self) -> bool:
        """True if there will be no further item."""
        return self.fd is None and not self._there

    def close(self) -> None:
        """Take nothing more."""
        fd, self.fd = self.fd, None
        self._there.clear()
        if fd:
            os.close(fd)

    def _read(self) -> None:
        assert self.fd is not None
        try:
            data = os.read(self.fd, READ_BYTES)
        except OSError as error:
            raise CommandError(Exit.IO_ERROR, f"cannot read {self._name}: {error.strerror or error}") from None
        if not data:
            if self._part:  # the last line needs no end
                self._there.append(bytes(self._part))
                self._part.clear()
            fd, self.fd = self.fd, None
            if fd:
                os.close(fd)
            return
        first, *rest = data.split(self._end)
        self._part += first
        if rest:
            self._there.append(bytes(self._part))
            self._there.extend(rest[:-1])
            self._part[:] = rest[-1]
        if len(self._part) > ITEM_BYTES_MAX or (self._there and len(self._there[0]) > ITEM_BYTES_MAX):
            number = self._number + (len(self._there) if len(self._part) > ITEM_BYTES_MAX else 0) + 1
            raise CommandError(Exit.BAD_FILE, f"{self._name}: item {number} has more than {ITEM_BYTES_MAX >> 20} MiB")


def open_items(items: Sequence[str], behind: Sequence[str], path: str | None, end: bytes) -> Items:
    """Return the items that were asked for: these, the lines of a file, of stdin if they are "-" alone.

    Args:
        behind: further ones, behind "--": here "-" is an item.
        path: of a file, or "-".
        end: of an item.

    Raises:
        CommandError: usage, missing, no permission, a directory.
    """
    given = [*items, *behind]
    if (path is None) == (not given):
        what = "items, or --from-file, or - for stdin" if path is None else "items or --from-file, not both"
        raise CommandError(Exit.USAGE, f"map takes {what} (see ptss-mp map --help)")
    if path is None and (behind or given != ["-"]):
        return Items(given)
    if path is None or path == "-":
        _refuse_a_folder(0, "stdin")
        return Items(fd=0, name="stdin", end=end)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        raise CommandError(Exit.NO_PERMISSION, f"{path}: no permission to read it") from None
    except (OSError, ValueError) as error:
        raise CommandError(Exit.MISSING, f"{path}: {getattr(error, 'strerror', None) or error}") from None
    _refuse_a_folder(fd, path)
    return Items(fd=fd, name=path, end=end)


def _refuse_a_folder(fd: int, name: str) -> None:
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        if fd:
            os.close(fd)
        raise CommandError(Exit.BAD_FILE, f"{name}: a directory has no lines")


def safe(item: str) -> str:
    """Return an item as the name of a file: what is not plain stands as %41, what is long is cut and told apart.

    Two items never have one name.
    """
    data = os.fsencode(item)
    name = "".join(chr(byte) if chr(byte) in PLAIN else f"%{byte:02X}" for byte in data) or "%"
    if name.startswith("."):  # ".", "..", and what would be hidden
        name = "%2E" + name[1:]
    if len(name) > NAME_CHARS_MAX:
        import hashlib

        name = name[: NAME_CHARS_MAX - 33] + "%-" + hashlib.sha256(data).hexdigest()[:31]
    return name
