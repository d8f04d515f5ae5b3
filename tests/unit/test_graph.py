"""What the end of a prerequisite means; and cycles among names."""

import pytest

from ptss_mp.core.graph import Waiting, judge, order, verdict
from ptss_mp.errors import InvalidOption

from .driving import edge


def waiting(run_if, count):
    return Waiting(1, run_if, tuple(edge(i) for i in range(count)))


@pytest.mark.parametrize(
    ("run_if", "ends", "judged"),
    [
        ("success", ["succeeded", "succeeded"], "ready"),
        ("success", ["succeeded"], ""),
        ("success", ["failed"], "dependency"),
        ("success", ["cancelled"], "dependency"),
        ("success", ["skipped"], "skipped"),
        ("done", ["failed", "skipped"], "ready"),
        ("done", ["failed"], ""),
        ("failure", ["failed", "succeeded"], "ready"),
        ("failure", ["dependency", "skipped"], "ready"),
        ("failure", ["succeeded", "skipped"], "skipped"),
        ("failure", ["crashed"], ""),
    ],
)
def test_judge(run_if, ends, judged):
    job = waiting(run_if, 2)
    verdicts = [judge(job, end) for end in ends]
    assert verdicts[-1] == judged
    assert not any(verdicts[:-1])


def test_without_prerequisites():
    assert verdict(waiting("success", 0)) == verdict(waiting("done", 0)) == "ready"
    assert verdict(waiting("failure", 0)) == "skipped"


def test_order_puts_needs_first_and_keeps_the_given_order():
    assert order({"c": ["a"], "b": [], "a": ["b"]}) == ["b", "a", "c"]


def test_order_names_the_cycle():
    with pytest.raises(InvalidOption, match="a -> b -> a") as caught:
        order({"x": ["a"], "a": ["b"], "b": ["a"]})
    assert caught.value.cycle == ("a", "b", "a")


def test_order_of_a_long_chain_and_a_long_cycle():
    chain = {str(i): [str(i + 1)] for i in range(5000)}
    assert order(chain | {"5000": []})[0] == "5000"
    with pytest.raises(InvalidOption, match="5001 tasks"):
        order(chain | {"5000": ["0"]})
