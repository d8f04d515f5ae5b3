"""Where groups can be made, and how their files are read: on copies of the trees that hosts have.

Version 2 with controllers could not be tried on a kernel here; its files are as its documentation shows them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ptss_mp.warden import cgroup
from ptss_mp.warden.cgroup import Absent, Group, Groups, Owner, Place, find, owner_of

V1 = "memory:/box"


class Host:
    """A copy of /proc/self and of what is mounted."""

    def __init__(self, folder: Path) -> None:
        self.root, self.mounts = folder / "proc", folder / "sys fs"
        (self.root / "self").mkdir(parents=True)
        self.mounts.mkdir()
        self.lines: list[str] = []

    def own(self, *lines: str) -> None:
        (self.root / "self/cgroup").write_text("".join(f"{line}\n" for line in lines))

    def mount(self, name: str, kind: str, superior: str, above: str = "/", options: str = "rw,nosuid") -> Path:
        point = self.mounts / name
        point.mkdir(exist_ok=True)
        shown = str(point).replace(" ", "\\040")
        self.lines.append(f"3{len(self.lines)} 23 0:28 {above} {shown} {options} shared:9 - {kind} {kind} {superior}\n")
        (self.root / "self/mountinfo").write_text("".join(self.lines))
        return point

    def group(self, path: Path, controllers: str = "cpu memory pids", passed_on: str = "memory pids") -> Path:
        """A group of version 2."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "cgroup.type").write_text("domain\n")
        (path / "cgroup.controllers").write_text(f"{controllers}\n")
        (path / "cgroup.subtree_control").write_text(f"{passed_on}\n")
        return path

    def find(self, controller: str) -> Place:
        return find(controller, str(self.root))

    def refusal(self, controller: str) -> str:
        with pytest.raises(Absent) as refused:
            self.find(controller)
        return str(refused.value)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


# ---- version 1


def test_each_controller_has_a_hierarchy_of_its_own(host):
    host.own("9:name=systemd:/", "8:pids:/", "4:cpu,memory:/box", "0::/")
    pids = host.mount("pids", "cgroup", "rw,pids")
    memory = host.mount("memory", "cgroup", "rw,cpu,memory")
    (memory / "box").mkdir()
    assert host.find("pids") == Place(1, str(pids))
    assert host.find("memory") == Place(1, str(memory / "box"))


def test_a_container_sees_its_own_group_as_the_mounted_one(host):
    """Without a namespace of its own: the path is the host's, and so is what is mounted."""
    host.own("4:memory:/docker/abc")
    memory = host.mount("memory", "cgroup", "rw,memory", above="/docker/abc")
    assert host.find("memory") == Place(1, str(memory))


def test_a_group_outside_of_what_is_mounted_is_none(host):
    host.own("4:memory:/other/abc")
    host.mount("memory", "cgroup", "rw,memory", above="/docker/abc")
    assert "lies outside of what is mounted" in host.refusal("memory")


@pytest.mark.parametrize(("options", "superior"), [("ro,nosuid", "rw,memory"), ("rw", "ro,memory")])
def test_a_read_only_mount_is_said(host, options, superior):
    host.own("4:memory:/")
    host.mount("memory", "cgroup", superior, options=options)
    assert "mounted read-only" in host.refusal("memory")


def test_a_controller_that_is_not_there_is_said(host):
    host.own("4:memory:/")
    host.mount("memory", "cgroup", "rw,memory")
    assert "no cgroup controller 'pids'" in host.refusal("pids")


def test_a_hierarchy_that_is_not_mounted_is_said(host):
    host.own("4:memory:/", "8:pids:/")
    host.mount("memory", "cgroup", "rw,memory")
    assert "of cgroup controller 'pids' is not mounted" in host.refusal("pids")


def test_without_proc_nothing_is_offered(tmp_path):
    with pytest.raises(Absent, match="No such file"):
        find("memory", str(tmp_path))


def test_a_group_that_is_not_writable_is_said(host, monkeypatch):
    host.own("4:memory:/")
    host.mount("memory", "cgroup", "rw,memory")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "not writable for this user" in host.refusal("memory")


# ---- version 2


def test_hybrid_hosts_have_no_controllers_in_version_2(host):
    host.own("4:memory:/", "0::/user")
    unified = host.mount("unified", "cgroup2", "rw")
    host.mount("memory", "cgroup", "rw,memory")
    host.group(unified / "user", controllers="hugetlb")
    assert host.find("memory").version == 1
    assert "'pids' is not delegated" in host.refusal("pids")


def test_no_limits_below_a_group_that_holds_the_program(host):
    host.own("0::/user.slice/run.scope")
    unified = host.mount("cgroup", "cgroup2", "rw,nsdelegate")
    host.group(unified / "user.slice")
    host.group(unified / "user.slice/run.scope", passed_on="")
    assert "above it nothing is delegated" in host.refusal("memory"), "a neighbour of its group would leave its limits"


def test_in_a_leaf_of_what_systemd_has_delegated(host, monkeypatch):
    """Delegate=yes with DelegateSubgroup=: the program stands in a leaf, the unit's group above is its own."""
    host.own("0::/system.slice/pool.service/main")
    unified = host.mount("cgroup", "cgroup2", "rw,nsdelegate")
    service = host.group(unified / "system.slice/pool.service")
    host.group(service / "main", passed_on="")
    marks = {str(service): {"trusted.delegate": b"1"}}

    def getxattr(path: str, name: str) -> bytes:
        try:
            return marks[path][name]
        except KeyError:
            raise OSError(61, "No data available") from None

    monkeypatch.setattr(os, "getxattr", getxattr)
    assert host.find("memory") == Place(2, str(service))
    (service / "cgroup.subtree_control").write_text("pids\n")
    assert "'memory' is not passed on" in host.refusal("memory")
    assert host.find("pids") == Place(2, str(service))


def test_a_container_may_divide_its_outermost_group(host):
    host.own("0::/init")
    unified = host.group(host.mount("cgroup", "cgroup2", "rw,nsdelegate"))
    host.group(unified / "init", passed_on="")
    assert host.find("pids") == Place(2, str(unified))
    (unified / "cgroup.type").unlink()  # the machine's own root: a group beside ours would leave our limits
    assert "nothing is delegated" in host.refusal("pids")


def test_the_machines_root_divides_as_it_is(host):
    """It alone may hold processes and pass controllers on."""
    host.own("0::/")
    unified = host.group(host.mount("cgroup", "cgroup2", "rw"))
    assert host.find("memory") == Place(2, str(unified))


def group_of_version_2(folder: Path) -> Group:
    (folder / "w").mkdir()
    for name, text in {
        "cgroup.procs": "", "pids.max": "max\n", "pids.current": "3\n", "memory.max": "max\n",
        "memory.swap.max": "max\n", "memory.oom.group": "0\n", "memory.current": "73728000\n", "cgroup.kill": "",
        "memory.stat": "anon 52428800\nfile 20480000\nkernel 800000\nshmem 10485760\nfile_mapped 0\n",
        "memory.events": "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n",
    }.items():  # fmt: skip
        (folder / "w" / name).write_text(text)
    return Group({"memory": Place(2, str(folder / "w")), "pids": Place(2, str(folder / "w"))})


def test_the_files_of_version_2(tmp_path):
    group = group_of_version_2(tmp_path)
    files = tmp_path / "w"
    group.attach(4_711)
    assert (files / "cgroup.procs").read_text() == "4711"
    assert (group.tasks(), group.charged_bytes(), group.oom_kills()) == (3, 73728000, 1)
    assert sum(group.held_bytes()) == 62914560
    (files / "pids.current").write_text("4\n")
    assert group.tasks() == 4, "read again"
    group.limit_tasks(8)
    group.limit_memory(1 << 28)
    names = ("pids.max", "memory.max", "memory.swap.max", "memory.oom.group")
    limits = [(files / name).read_text()[:9] for name in names]
    assert limits == ["8ax\n", "268435456", "0ax\n", "1\n"], "written over: a real one takes a write as a whole"
    group.limit_memory(cgroup.NO_LIMIT)
    assert (files / "memory.max").read_text().startswith("max")
    (files / "cgroup.procs").write_text("1\n22\n")
    assert group.members() == [1, 22]
    assert group.kill() == 2
    assert (files / "cgroup.kill").read_text() == "1"
    group.close()


# ---- names and leftovers


def test_an_owner_is_known_by_its_name():
    me = Owner.me()
    assert owner_of(me.name) == me
    assert not me.is_gone
    assert me._replace(born=me.born - cgroup.proc.TICK_NS).is_gone, "another process had that pid"
    assert me._replace(pid=1 << 30).is_gone
    assert not me._replace(pid=1 << 30, space=1).is_gone, "what a pid of another namespace means nobody knows here"


@pytest.mark.parametrize("name", ["box", "ptss_mp-", "ptss_mp-1-2", "ptss_mp-1-2-x", "ptss_mp-1-2-3-4", "x-1-2-3"])
def test_groups_of_others_are_not_ours(name):
    assert owner_of(name) is None


def test_what_dead_owners_have_left_is_removed(tmp_path):
    place, me = Place(1, str(tmp_path)), Owner.me()
    dead, foreign = me._replace(pid=1 << 30), me._replace(space=1)
    for owner in (dead, foreign, me):
        (tmp_path / owner.name / "7").mkdir(parents=True)
    (tmp_path / "box").mkdir()
    assert cgroup.remove_leftovers(place) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"box", me.name, foreign.name}


def test_groups_stand_below_one_parent_in_each_hierarchy(tmp_path):
    places = {"memory": Place(1, str(tmp_path / "memory")), "pids": Place(1, str(tmp_path / "pids"))}
    for place in places.values():
        Path(place.folder).mkdir()
    groups = Groups(places)
    name = Owner.me().name
    first, second = groups.make("1"), groups.make("2")
    for place in places.values():
        assert {path.name for path in (Path(place.folder) / name).iterdir()} == {"1", "2"}
    assert first.remove()
    assert first.remove(), "it is gone already"
    assert groups.remove()
    assert second.remove()
    assert [list(Path(place.folder).iterdir()) for place in places.values()] == [[], []]
