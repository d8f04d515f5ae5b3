"""What is told of a job."""

from ptss_mp.core import events as on
from ptss_mp.core.story import story

from .driving import MS, Drive, Spec, row


def words(drive, job):
    return [line.what for line in story(drive.core.history, job)]


def test_a_job_that_went_well():
    drive = Drive()
    drive.submit(row(1))
    drive.answer(1, 1)
    assert words(drive, 1) == ["submitted", "sent", "answered", "succeeded"]


def test_a_job_that_crashed_and_was_made_again():
    drive = Drive()
    drive.submit(row(1, Spec(1, retries=1)))
    drive.die(1, 1)
    assert words(drive, 1) == ["submitted", "sent", "worker died", "postponed"]


def test_a_job_whose_prerequisite_failed():
    drive = Drive()
    drive.submit(row(1), row(2, after=[1]))
    drive.answer(1, 1, end=on.FAILED)
    last = story(drive.core.history, 2)[-1]
    assert (last.what, last.detail) == ("dependency", "by job 1")


def test_what_a_job_waits_for_and_what_it_holds():
    drive = Drive(2, resources={"gpu": ("0", "3"), "space": 9})
    both = Spec(1, needs=(("gpu", 2), ("space", 5)))
    drive.submit(row(1, both), row(2, both))
    drive.answer(1, 1)
    told = [(line.what, line.detail) for line in story(drive.core.history, 2)]
    assert told == [
        ("submitted", ""), ("waits", "for gpu, space"), ("sent", "holds gpu 0 and 3, space 5"),
    ]  # fmt: skip


def test_condemned_and_killed_are_told_with_the_worker():
    drive = Drive()
    drive.submit(row(1, Spec(1, timeout_ns=5 * MS)))
    drive.wait(100 * MS, marks={1: (1, drive.now)})
    line = story(drive.core.history, 1)[-1]
    assert (line.what, line.worker, line.detail) == ("killed", 1, "timeout")
