"""Words of resources: what a pool has, what a job needs of it, what its process shall have in its environment."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import InvalidOption, InvalidType
from .units import SIZE_MAX_BYTES, nearest, shown, size_bytes, text, whole

UNITS_MAX = 1_000  # of one token; a pool has at most a thousand workers, and each free unit is looked at by name
ENV_BYTES_MAX = 1 << 16  # of all variables of a job: they travel in one message, and stand in each worker
NAME_MAX = 100

Resources = Mapping[str, tuple[str, ...] | int]  # token -> the names of its units, or its amount


class Need(NamedTuple):
    """How much of a token a job needs; `amount`: it was said as a size."""

    name: str
    much: int
    amount: bool


def pool_resources(given: Any) -> Resources:
    """Return what a pool has, as the core wants it.

    Args:
        given: token -> how many units ("0", "1", …), or a list of the units' names, or a size such as "8GiB".

    Raises:
        InvalidOption, InvalidType: what can never be right.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidType(f"resources must be a mapping such as {{'gpu': 2}}, not {type(given).__name__}")
    return {_token(name): _there(name, there) for name, there in given.items()}


def _token(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidType(f"a token in resources must have a text as name, not {type(name).__name__}")
    if not name.isidentifier() or len(name) > NAME_MAX:
        raise InvalidOption(f"a token in resources must be named like a variable, such as 'gpu', not {shown(name)}")
    return name


def _there(name: str, there: Any) -> tuple[str, ...] | int:
    what = f"resources[{name!r}]"
    if isinstance(there, str):
        return _amount(there, what)
    if not isinstance(there, list | tuple):
        return tuple(map(str, range(whole(there, what, 1, UNITS_MAX))))
    for unit in there:
        text(unit, f"a unit in {what}")
        if "," in unit:
            raise InvalidOption(f"a unit in {what} must have no comma in its name, {shown(unit)} has")
    if not 1 <= len(there) <= UNITS_MAX:
        raise InvalidOption(f"{what} must name 1 to {UNITS_MAX} units, not {len(there)}")
    if len(set(there)) < len(there):
        raise InvalidOption(f"{what} names a unit twice: {shown(there)}")
    return tuple(there)


def _amount(given: str, what: str) -> int:
    try:
        return size_bytes(given, what)
    except InvalidOption as error:
        raise InvalidOption(f"{error}; a text is an amount: give units as a number or a list") from None


# ---- What a job asks for.


def check_needs(value: Any, what: str) -> None:
    """Raise unless `value` is a mapping of tokens to numbers or sizes."""
    needs(value, what)


def needs(value: Any, what: str) -> tuple[Need, ...]:
    """Return the option `resources` as the core's terms want it, by name."""
    if not isinstance(value, Mapping):
        raise InvalidType(f"{what} must be a mapping such as {{'gpu': 1}}, not {type(value).__name__}")
    found = []
    for name, count in value.items():
        here = f"{what}[{_token(name)!r}]"
        much = _amount(count, here) if isinstance(count, str) else whole(count, here, 1, SIZE_MAX_BYTES)
        found.append(Need(name, much, isinstance(count, str)))
    return tuple(sorted(found))


def fitted(asked: tuple[Need, ...], memory_bytes: int, there: Resources) -> tuple[tuple[str, int], ...]:
    """Return what a job holds while it runs.

    Args:
        memory_bytes: its limit: as much of a token named "memory" is held, unless `asked` says how much.

    Raises:
        InvalidOption: the pool has no such token, or less of it: the job could never start.
    """
    if memory_bytes and "memory" in there and all(need.name != "memory" for need in asked):
        if not isinstance(there["memory"], int):
            raise InvalidOption(
                "a memory limit holds as much of the token 'memory', which this pool counts in units; "
                "make it a size, Executor(resources={'memory': '8GiB'}), or give the units another name"
            )
        asked = tuple(sorted((*asked, Need("memory", memory_bytes, True))))
    for need in asked:
        _check_there(need, there)
    return tuple((need.name, need.much) for need in asked)


def _check_there(need: Need, there: Resources) -> None:
    name, count = need.name, need.much
    if name not in there:
        none = "it has none; Executor(resources={...}) gives it some, the command line cannot"
        has = f"it has {', '.join(there)}" if there else none
        raise InvalidOption(f"this pool has no token {name!r}{nearest(name, there)} ({has})")
    units = there[name]
    if isinstance(units, int):
        if count > units:
            raise InvalidOption(f"the job needs {count} of {name!r}, and this pool has {units}: it could never start")
        return
    if need.amount:
        raise InvalidOption(f"{name!r} is counted in units here ({len(units)}): ask for a number of them, not a size")
    if count > len(units):
        raise InvalidOption(f"the job needs {count} of {name!r}, and this pool has {len(units)}: it could never start")


# ---- Its environment.


def check_env(value: Any, what: str) -> None:
    """Raise unless `value` is a mapping of names of variables to templates."""
    templates(value, what)


def templates(value: Any, what: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the option `env`, by name: each value as pieces of which every other one names a token."""
    if not isinstance(value, Mapping):
        raise InvalidType(f"{what} must be a mapping of variables to texts, not {type(value).__name__}")
    total = 0
    for name, template in value.items():
        if not isinstance(name, str) or not isinstance(template, str):
            raise InvalidType(f"{what} must be a mapping of texts to texts, not of {name!r:.80} to {template!r:.80}")
        if not name or "=" in name or "\0" in name:
            raise InvalidOption(f"a variable in {what} must have a name without '=' and NUL, not {shown(name)}")
        if name.startswith("PTSS_MP_"):
            raise InvalidOption(f"{what} must not set {name!r}: what begins with PTSS_MP_ is this library's own")
        if "\0" in template:
            raise InvalidOption(f"{what}[{name!r}] must have no NUL in it, {shown(template)} has")
        try:
            total += len(name.encode()) + len(template.encode())
        except UnicodeEncodeError:
            raise InvalidOption(f"{what}[{name!r}] must be encodable as UTF-8, {shown(template)} is not") from None
    if total > ENV_BYTES_MAX:
        raise InvalidOption(f"{what} must have at most {ENV_BYTES_MAX} bytes in all, not {total}")
    return tuple(sorted((name, _pieces(template, f"{what}[{name!r}]")) for name, template in value.items()))


def _pieces(template: str, what: str) -> tuple[str, ...]:
    """Split "a{gpu}b" into ("a", "gpu", "b"); "{{" and "}}" stand for the braces themselves."""
    pieces = [""]
    try:
        for literal, field, spec, conversion in string.Formatter().parse(template):
            pieces[-1] += literal
            if field is None:
                continue
            if spec or conversion or not field.isidentifier():
                raise ValueError(f"{{{field}}} names no token")
            pieces += [field, ""]
    except ValueError as error:
        why = f"{what} must be a text in which {{token}} stands for what the job holds, and {{{{ for a brace"
        raise InvalidOption(f"{why}; {shown(template)} is not: {error}") from None
    return tuple(pieces)


def check_held(
    env: tuple[tuple[str, tuple[str, ...]], ...], held: tuple[tuple[str, int], ...], there: Resources
) -> None:
    """Refuse a template that names a token which the job does not hold, and an environment that may be too long.

    Raises:
        InvalidOption: it is.
    """
    names = dict(held)
    total = 0
    for variable, pieces in env:
        total += len(variable.encode()) + sum(len(piece.encode()) for piece in pieces[::2])
        for token in pieces[1::2]:
            if token in names:
                total += _longest(names[token], there[token])
            else:
                holds = f"it holds {', '.join(names)}" if names else "it holds none; resources={...} asks for some"
                text = f"env[{variable!r}] names the token {token!r}, which the job does not hold"
                raise InvalidOption(f"{text}{nearest(token, names)} ({holds})")
    if total > ENV_BYTES_MAX:
        raise InvalidOption(f"env with the names of what is held may have {total} bytes, {ENV_BYTES_MAX} are allowed")


def _longest(much: int, there: tuple[str, ...] | int) -> int:
    """Return how many bytes so much of a token may be as text."""
    if isinstance(there, int):
        return len(str(much))
    return sum(sorted((1 + len(unit.encode()) for unit in there), reverse=True)[:much])
