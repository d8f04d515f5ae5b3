"""Words of resources and environments: what is taken, and what is refused with which words."""

from datetime import timedelta

import pytest

from ptss_mp import InvalidOption, InvalidType, Options, task
from ptss_mp.jobsfile import compile_jobs
from ptss_mp.resources import ENV_BYTES_MAX, Need, check_held, fitted, needs, pool_resources, templates
from ptss_mp.rules import rules


@pytest.mark.parametrize(
    ("given", "there"),
    [
        (None, {}),
        ({}, {}),
        ({"gpu": 2}, {"gpu": ("0", "1")}),
        ({"gpu": ["0", "3"]}, {"gpu": ("0", "3")}),
        ({"gpu": ("b", "a")}, {"gpu": ("b", "a")}),
        ({"memory": "8GiB", "licence": 1}, {"memory": 8 << 30, "licence": ("0",)}),
    ],
)
def test_what_a_pool_has(given, there):
    assert pool_resources(given) == there


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([("gpu", 2)], InvalidType, "must be a mapping"),
        ({1: 2}, InvalidType, "must have a text as name"),
        ({"two words": 2}, InvalidOption, "named like a variable"),
        ({"": 2}, InvalidOption, "named like a variable"),
        ({"gpu": 0}, InvalidOption, "resources['gpu'] must be within 1 and"),
        ({"gpu": True}, InvalidType, "whole number, not bool"),
        ({"gpu": 1.5}, InvalidType, "whole number, not float"),
        ({"gpu": None}, InvalidType, "whole number, not NoneType"),
        ({"gpu": "0,1"}, InvalidOption, "not '0,1'; a text is an amount: give units as a number or a list"),
        ({"gpu": []}, InvalidOption, "must name 1 to"),
        ({"gpu": ["0", "0"]}, InvalidOption, "a unit twice"),
        ({"gpu": ["0,1"]}, InvalidOption, "no comma"),
        ({"gpu": [0, 1]}, InvalidType, "must be text"),
        ({"memory": "many"}, InvalidOption, "must look like"),
        ({"memory": "0B"}, InvalidOption, "above zero"),
    ],
)
def test_what_no_pool_can_have(given, error, words):
    with pytest.raises(error) as refused:
        pool_resources(given)
    assert words in str(refused.value)


def test_needs_by_name():
    assert needs({"gpu": 1, "db": "2KiB"}, "resources") == (Need("db", 2048, True), Need("gpu", 1, False))


POOL = {"gpu": ("0", "1"), "memory": 8 << 30}


@pytest.mark.parametrize(
    ("asked", "memory", "held"),
    [
        ({"gpu": 2}, 0, (("gpu", 2),)),
        ({"memory": 5}, 0, (("memory", 5),)),
        ({}, 1 << 30, (("memory", 1 << 30),)),
        ({"gpu": 1}, 1 << 30, (("gpu", 1), ("memory", 1 << 30))),
        ({"memory": "1MiB"}, 1 << 30, (("memory", 1 << 20),)),
    ],
)
def test_what_a_job_holds(asked, memory, held):
    assert fitted(needs(asked, "resources"), memory, POOL) == held


def test_a_memory_limit_without_such_a_token_holds_nothing():
    assert fitted((), 1 << 30, {"gpu": ("0",)}) == ()


@pytest.mark.parametrize(
    ("asked", "memory", "there", "words"),
    [
        ({"gpu": 3}, 0, POOL, "needs 3 of 'gpu', and this pool has 2: it could never start"),
        ({"gpuu": 1}, 0, POOL, "no token 'gpuu'; did you mean 'gpu'? (it has gpu, memory)"),
        ({"gpu": 1}, 0, {}, "no token 'gpu' (it has none"),
        ({"gpu": "1GiB"}, 0, POOL, "counted in units here (2)"),
        ({"memory": "9GiB"}, 0, POOL, "it could never start"),
        ({}, 9 << 30, POOL, "it could never start"),
        ({}, 1 << 30, {"memory": ("0", "1")}, "counts in units"),
    ],
)
def test_what_can_never_fit_is_refused_with_the_facts(asked, memory, there, words):
    with pytest.raises(InvalidOption) as refused:
        fitted(needs(asked, "resources"), memory, there)
    assert words in str(refused.value)


def test_templates():
    assert templates({"B": "x{gpu}y{db}", "A": "{{}}"}, "env") == (("A", ("{}",)), ("B", ("x", "gpu", "y", "db", "")))


@pytest.mark.parametrize("bad", ["{", "}", "{}", "{0}", "{gpu", "{gpu!r}", "{gpu:>3}", "{a b}", "{gpu.x}", "{gpu[0]}"])
def test_templates_that_are_none(bad):
    with pytest.raises(InvalidOption, match="stands for what the job holds"):
        templates({"A": bad}, "env")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("A=1", InvalidType, "must be a mapping"),
        ({"A": 1}, InvalidType, "texts to texts"),
        ({"": "x"}, InvalidOption, "without '='"),
        ({"A=B": "x"}, InvalidOption, "without '='"),
        ({"A\0": "x"}, InvalidOption, "NUL"),
        ({"A": "x\0"}, InvalidOption, "NUL"),
        ({"A": "\udc80"}, InvalidOption, "UTF-8"),
        ({"PTSS_MP_WORKER": "x"}, InvalidOption, "library's own"),
        ({"A": "x" * ENV_BYTES_MAX}, InvalidOption, "bytes in all"),
    ],
)
def test_no_environment(given, error, words):
    with pytest.raises(error) as refused:
        Options(env=given)
    assert words in str(refused.value)


def test_a_template_names_only_what_the_job_holds():
    env = templates({"A": "{gpus}"}, "env")
    with pytest.raises(InvalidOption, match=r"'gpus', which .* not hold; did you mean 'gpu'\? \(it holds gpu\)"):
        check_held(env, (("gpu", 1),), POOL)
    with pytest.raises(InvalidOption, match="it holds none"):
        check_held(env, (), POOL)
    check_held(templates({"A": "{gpu}"}, "env"), (("gpu", 1),), POOL)


def test_an_environment_is_bounded_with_what_is_held_in_it():
    long = {"gpu": tuple(f"{i:0999}" for i in range(100))}
    env = templates({"A": "{gpu}"}, "env")
    check_held(env, (("gpu", 65),), long)
    with pytest.raises(InvalidOption, match="66001 bytes, 65536 are allowed"):
        check_held(env, (("gpu", 66),), long)


class TestOptions:
    def test_mappings_replace_and_none_lifts(self):
        base = Options(resources={"gpu": 1}, env={"A": "1"})
        assert rules(base | Options(resources={"db": 2})).resources == (Need("db", 2, False),)
        assert rules(base | Options(env={"B": "2"})).env == (("B", ("2",)),)
        lifted = rules(base | Options(resources=None, env=None))
        assert (lifted.resources, lifted.env) == ((), ())

    def test_they_are_copied(self):
        mine = {"gpu": 1}
        options = Options(resources=mine)
        mine["gpu"] = 2
        assert options.resources == {"gpu": 1}

    def test_rules_of_equal_mappings_are_equal(self):
        one, other = Options(env={"A": "1", "B": "2"}), Options(env={"B": "2", "A": "1"})
        assert hash(rules(one)) == hash(rules(other))

    @pytest.mark.parametrize("bad", [{"gpu": 0}, {"gpu": -1}, {"g p u": 1}, {"gpu": "much"}])
    def test_what_no_job_can_need(self, bad):
        with pytest.raises(InvalidOption):
            task(resources=bad)

    @pytest.mark.parametrize("bad", ["gpu", {"gpu": 1.0}, {"gpu": timedelta(1)}, {1: 1}])
    def test_what_is_no_need(self, bad):
        with pytest.raises(InvalidType):
            Options(resources=bad)


def test_a_jobs_file_cannot_have_tokens():
    where = {"where": "jobs.py:3", "name": "train", "index": 0, "function": "train", "variables": [], "after": [],
             "args": [], "kwargs": {}, "items": None, "required": []}  # fmt: skip
    for options in ({"resources": {"gpu": 1}}, {"env": {"A": "{gpu}"}}):
        with pytest.raises(InvalidOption, match=r"^jobs\.py:3: task 'train': .*'gpu'"):
            compile_jobs({"path": "jobs.py", "tasks": [where | {"options": options}]})
