"""The gate of free memory: what counts as available, and when it is looked at."""

import psutil
import pytest

from ptss_mp.core.events import MemoryLooked
from ptss_mp.core.job import NEVER
from ptss_mp.shell import container, memfree
from ptss_mp.shell.memfree import LOOK_NS, MemoryGate

MIB = 1 << 20


@pytest.fixture
def there(monkeypatch):
    """The machine's memory, as the gate sees it."""
    found = {"bytes": 100 * MIB, "looks": 0}

    def look():
        found["looks"] += 1
        return found["bytes"]

    monkeypatch.setattr(memfree, "available_bytes", look)
    return found


def test_it_tells_what_has_changed(there):
    gate = MemoryGate(80 * MIB)
    assert gate.look(1) is None
    assert gate.again_at == NEVER
    there["bytes"] = 70 * MIB
    assert gate.look(1 + LOOK_NS) == MemoryLooked(1 + LOOK_NS, True)
    assert gate.again_at == 1 + 2 * LOOK_NS
    assert gate.look(1 + 2 * LOOK_NS) is None
    there["bytes"] = 90 * MIB
    assert gate.look(1 + 3 * LOOK_NS) == MemoryLooked(1 + 3 * LOOK_NS, False)


def test_a_program_that_cannot_look_goes_by_what_it_saw_last(there, monkeypatch):
    """Regression: without a descriptor left the supervisor failed, and the pool with it."""
    gate = MemoryGate(80 * MIB)
    there["bytes"] = 70 * MIB
    assert gate.look(1) == MemoryLooked(1, True)

    def fail():
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as without:
        without.setattr(memfree, "available_bytes", fail)
        assert gate.look(1 + LOOK_NS) is None
    assert gate.again_at == 1 + 2 * LOOK_NS
    there["bytes"] = 90 * MIB
    assert gate.look(1 + 2 * LOOK_NS) == MemoryLooked(1 + 2 * LOOK_NS, False)


def test_it_looks_ten_times_a_second_at_most(there):
    gate = MemoryGate(80 * MIB)
    for now in range(0, 2 * LOOK_NS, LOOK_NS // 50):
        gate.look(now)
    assert there["looks"] == 2


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, None),
        ({"memory.max": "max", "memory.current": "5"}, None),
        ({"memory.max": str(90 * MIB), "memory.current": str(60 * MIB), "memory.stat": "anon 1\n"}, 30 * MIB),
        (
            {
                "memory.max": str(90 * MIB), "memory.current": str(60 * MIB),
                "memory.stat": f"anon 1\ninactive_file {20 * MIB}\n",
            },
            50 * MIB,
        ),
        (
            {
                "memory/memory.limit_in_bytes": str(90 * MIB), "memory/memory.usage_in_bytes": str(60 * MIB),
                "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {10 * MIB}\n",
            },
            40 * MIB,
        ),
        ({"memory.max": "10", "memory.current": "20"}, 0),
    ],
)  # fmt: skip
def test_what_a_cgroup_leaves(tmp_path, monkeypatch, files, left):
    monkeypatch.setattr(container, "ROOT", str(tmp_path))
    (tmp_path / "memory").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    machine = psutil.virtual_memory()
    if left is None:
        assert abs(memfree.available_bytes() - machine.available) < machine.total // 4
        assert memfree.most_bytes() == machine.total
    else:
        assert memfree.available_bytes() == left
