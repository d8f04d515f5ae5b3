"""`check`: what a run would do."""

from tests.cli.cli_support import assert_one_line, jobs_file, ptss_mp


def test_tasks_come_in_order_with_what_they_need(tmp_path):
    path = jobs_file(
        tmp_path,
        "@task(after='pages', run_if='done')\ndef last(): ...\n"
        "@task\ndef backup(snapshot): ...\n"
        "@task\ndef snapshot(): ...\n"
        "pages = task().map(lambda n, backup: n, range(3))\n",
    )
    ended = ptss_mp("check", path)
    assert ended.status == 0, ended
    assert ended.out.splitlines() == [
        "snapshot",
        "backup <- snapshot",
        "pages (3 jobs) <- backup",
        "last <- pages (run_if=done)",
    ]
    assert ended.lines == [f"{path}: 4 tasks, 6 jobs; none was started"]


def test_nothing_is_started(tmp_path):
    path = jobs_file(tmp_path, "@task\ndef touch(): open('touched', 'w').close()\n")
    assert ptss_mp("check", path, cwd=tmp_path).status == 0
    assert not (tmp_path / "touched").exists()


def test_a_file_without_tasks_is_good(tmp_path):
    path = jobs_file(tmp_path, "x = 1\n")
    ended = ptss_mp("check", path)
    assert (ended.status, ended.out) == (0, "")
    assert ended.lines == [f"{path}: no tasks; decorate a function with @task"]


def test_what_an_import_prints_is_no_data(tmp_path):
    path = jobs_file(tmp_path, "print('hello'); os.write(1, b'raw')\n@task\ndef a(): ...\n")
    ended = ptss_mp("check", path)
    assert (ended.status, ended.out) == (0, "a\n")


def test_a_path_is_told_as_it_was_given(tmp_path):
    jobs_file(tmp_path, "1 / 0\n")
    assert_one_line(ptss_mp("check", "jobs.py", cwd=tmp_path), 65, "ptss-mp: jobs.py:3: ZeroDivisionError")


def test_a_thread_that_the_import_left_is_not_waited_for(tmp_path):
    thread = "import threading\nthreading.Thread(target=time.sleep, args=(300,)).start()\n"
    path = jobs_file(tmp_path, thread + "@task\ndef a(): ...\n")
    assert ptss_mp("check", path).status == 0


def test_deadlines_that_cannot_be_met_are_told(tmp_path):
    source = "@task(start_time='2h')\ndef a(): ...\n@task(deadline='30m')\ndef b(a): ...\n@task\ndef c(b): ...\n"
    ended = ptss_mp("check", jobs_file(tmp_path, source), cwd=tmp_path)
    assert ended.status == 0, "it is a warning"
    assert ended.out.splitlines() == ["a", "b <- a", "c <- b"]
    why = "the start time of 'a', which it comes after, is 1h30m after the deadline"
    told = f"warning: b cannot meet its deadline: {why}; it would end `deadline` without having run"
    assert [line.partition(": ")[2] for line in ended.lines] == [told, "3 tasks, 3 jobs; none was started"]
