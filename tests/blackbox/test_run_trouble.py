"""`hapax run` in trouble: readers that stand still, stores that do not answer, signals at every moment, and a death by
SIGKILL. No time decides a verdict."""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import socket
import sqlite3
import subprocess

import pytest
from harness import PATIENCE_S, wait_until
from test_run import place  # noqa: F401 (a fixture)
from test_run import TRY_LATER, fail_store, finish, is_alive, paste, printed_commands, wait_for_end


def holds_back(pid, number):
    """Does the process block that signal?"""
    with contextlib.suppress(FileNotFoundError):
        mask = re.search(r"^SigBlk:\s+(\w+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
        return mask is not None and int(mask.group(1), 16) >> (number - 1) & 1 == 1
    return False


# --- readers ---------------------------------------------------------------------------------------


def test_the_end_is_recorded_while_the_reader_stands_still(place):
    first = place.start(*place.script("head -c 110000 /dev/zero; head -c 100 /dev/zero >&2"))  # more than its pipe holds, less than two
    wait_until(lambda: place.state() == "done", "it is recorded")
    assert first.poll() is None
    assert place.run(*place.script("head -c 110000 /dev/zero; head -c 100 /dev/zero >&2")).stdout == bytes(110000)
    done = finish(first)  # and now it reads
    assert (done.returncode, done.stdout, done.stderr) == (0, bytes(110000), bytes(100))
    assert len(place.effects()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_what_only_waits_for_its_reader(place, number):
    first = place.start(*place.script("head -c 110000 /dev/zero"))
    wait_until(lambda: place.state() == "done", "it is recorded")
    first.send_signal(number)
    assert first.wait(PATIENCE_S) == 128 + number
    done = finish(first)
    assert b"before all of its output was taken; that it ended with exit code 0 is recorded" in done.stderr
    assert 0 < len(done.stdout) < 110000
    assert place.run(*place.script("head -c 110000 /dev/zero")).stdout == bytes(110000)


def on_one_pipe(place, script, *options):
    """Both outputs of hapax are one pipe."""
    line = shlex.join(["hapax", "run", "--key", "k", *options, "--", *place.script(script)])
    process = subprocess.Popen(["sh", "-c", f"exec {line} 2>&1"], env=place.env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, cwd=place.folder)
    place.started.append(process)
    return process


BOTH = "(while :; do echo out; done) & while :; do echo err >&2; done"


def test_both_outputs_on_a_pipe_that_nobody_reads_do_not_hold_up_a_timeout(place):
    first = on_one_pipe(place, BOTH, "--timeout", "1s", "--keep-failures")
    wait_until(lambda: place.state() == "done", "its time is over")
    first.send_signal(signal.SIGTERM)
    finish(first)
    place.run(*place.script(BOTH), code=124)


def test_a_terminal_that_nobody_reads_does_not_hold_up_a_timeout(place):
    ours, theirs = os.openpty()
    first = place.start(*place.script(BOTH), options=["--timeout", "1s", "--keep-failures"], stdout=theirs)
    os.close(theirs)
    wait_until(lambda: place.state() == "done", "its time is over")
    first.send_signal(signal.SIGTERM)
    finish(first)
    os.close(ours)


def test_sockets_and_files_get_all_of_it(place):
    ours, theirs = socket.socketpair()
    process = place.start("head", "-c", "900000", "/dev/zero", stdout=theirs)
    theirs.close()
    with ours.makefile("rb") as reader:
        assert reader.read() == bytes(900000)
    assert finish(process).returncode == 0
    with open(place.folder / "log", "w") as log:
        log.write("before\n")
        log.flush()
        place.run("echo", "out", stdout=log, key="file")
        log.write("after\n")
    assert (place.folder / "log").read_text() == "before\nout\nafter\n"


def test_a_reader_that_leaves_a_repeat_is_no_failure_either(place):
    command = ["head", "-c", "900000", "/dev/zero"]
    place.run(*command)
    again = place.start(*command)
    again.stdout.close()
    assert again.wait(PATIENCE_S) == 0


# --- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code, state", [(0, "done"), (7, "absent")])
def test_who_succeeds_after_its_time_has_succeeded(place, code, state):
    command = place.script(f"trap 'exit {code}' TERM; echo $$ > here; while :; do sleep 0.02; done")
    place.run(*command, options=["--timeout", "1s"], code=0 if code == 0 else 124)
    assert place.state() == state


# --- before the command ----------------------------------------------------------------------------


def held_store(place, plan):
    fail_store(place, plan)
    return ["--lease", "1s", "--store", f"fault:control={place.folder}/plan:{place.store}"]


def test_a_signal_while_the_store_gives_the_claim_starts_nothing(place):
    first = place.start(*place.script(""), options=held_store(place, "hold=1,when=after"))
    wait_until(lambda: place.state() == "running", "it has its claim, and is not told so")
    first.send_signal(signal.SIGTERM)
    fail_store(place, "")
    done = finish(first)
    assert done.returncode == 128 + signal.SIGTERM
    assert b"before the command was started" in done.stderr
    assert place.effects() == [] and place.state() == "absent"


def test_a_command_that_is_not_there_never_ran_whatever_the_store_does(place):
    options = held_store(place, "hold=1,when=after")
    first = place.start("./absent", options=options)
    wait_until(lambda: place.state() == "running", "it has its claim")
    fail_store(place, "every=1")
    done = finish(first)
    assert done.returncode == 127
    assert b"can't run ./absent" in done.stderr and b"could not be freed" in done.stderr
    assert b"RAN" not in done.stderr
    fail_store(place, "")
    wait_until(lambda: place.state() == "unknown", "its claim ends")
    paste(place, printed_commands(done)["it was not started"])
    assert place.state() == "absent"


def test_a_signal_ends_a_run_whose_database_does_not_answer(place):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        store = f"postgresql://a@127.0.0.1:{server.getsockname()[1]}/a"
        first = place.start(*place.script(""), options=["--store", store])
        connection, _ = server.accept()
        assert not holds_back(first.pid, signal.SIGTERM)
        first.send_signal(signal.SIGTERM)
        assert finish(first).returncode == -signal.SIGTERM
        connection.close()
    assert place.effects() == []


def has_open(process, name):
    for descriptor in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            if name in os.readlink(descriptor):
                return True
    return False


def test_a_signal_ends_a_run_whose_file_is_locked(place):
    place.run("true", key="another")
    lock = sqlite3.connect(place.store.removeprefix("sqlite:"), isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    first = place.start(*place.script(""))
    wait_until(lambda: has_open(first, "store.db"), "it has opened the file")
    first.send_signal(signal.SIGTERM)
    assert finish(first).returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)  # the file is still locked
    lock.close()
    assert place.effects() == [] and place.state() == "absent"


# --- killed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole_group", [False, True])
def test_what_the_command_has_started_dies_with_a_killed_run(place, whole_group):
    command = place.script("(while :; do sleep 0.02; done) & echo $! > here; wait")
    first = place.start(*command, start_new_session=True)
    grandchild = place.once_started(first)
    if whole_group:
        os.killpg(first.pid, signal.SIGKILL)
    else:
        first.kill()
    wait_for_end(grandchild)
    finish(first)  # nobody holds its output any more
    assert b"nobody knows" in place.run(*command, code=TRY_LATER).stderr


def test_after_the_end_nothing_is_killed(place):
    place.run(*place.script("(exec >&- 2>&-; while :; do sleep 0.02; done) & echo $! > here"))
    left = int((place.folder / "here").read_text())
    assert is_alive(left)
    os.kill(left, signal.SIGKILL)


def test_a_killed_run_is_settled_at_once(place):
    first = place.start(*place.waiting())
    place.once_started(first)
    paste(place, f"HAPAX_STORE={shlex.quote(place.store)} hapax keys resolve --released run k", code=4)  # it lives
    first.kill()
    first.wait()
    assert place.state() == "running"  # by its lease
    paste(place, f"HAPAX_STORE={shlex.quote(place.store)} hapax keys resolve --done --body there run k")
    assert place.run(*place.waiting()).stdout == b"there"
    assert len(place.effects()) == 1


@pytest.mark.parametrize("what, state", [("if it took effect", "done"), ("if it did not", "absent")])
def test_the_commands_printed_for_an_end_that_was_not_recorded_work_at_once(place, what, state):
    fail_store(place, "")
    store = f"fault:control={place.folder}/plan:{place.store}"
    first = place.start(*place.waiting(), options=["--store", store])
    place.once_started(first)
    fail_store(place, "every=1")
    (place.folder / "go").touch()
    assert b"can't store the end of the command" in first.stderr.readline()
    first.send_signal(signal.SIGTERM)
    done = finish(first)
    assert done.returncode == TRY_LATER and b"THE COMMAND RAN" in done.stderr
    fail_store(place, "")
    paste(place, printed_commands(done)[what])
    assert place.state() == state


# --- limits of the system --------------------------------------------------------------------------


def limited(place, limit, *words, options=(), redirect=""):
    line = shlex.join(["hapax", "run", "--key", "k", *options, "--", *words])
    return finish(subprocess.Popen(["sh", "-c", f"ulimit {limit} && exec {line} {redirect}"], env=place.env, cwd=place.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))


def test_a_limit_of_file_sizes_does_not_end_the_command(place):
    script = place.script("head -c 3000000 /dev/zero; echo finished > end")
    done = limited(place, "-f 600", *script, options=["--keep-output", "0"], redirect="> big")
    assert done.returncode == 1 and b"can't write all of the output: File too large" in done.stderr
    assert (place.folder / "end").read_text() == "finished\n"
    assert place.state() == "done"


def test_a_limit_of_file_sizes_ends_commands_that_pass_it(place):
    done = limited(place, "-f 600", *place.script("exec head -c 3000000 /dev/zero > big"))
    assert done.returncode == 128 + signal.SIGXFSZ
    assert place.state() == "absent"


def test_a_store_without_room_for_the_output_has_the_end(place):
    script = place.script("head -c 3000000 /dev/zero")
    done = limited(place, "-f 600", *script, options=["--lease", "2s"])
    assert (done.returncode, done.stdout) == (0, bytes(3000000)), done.stderr
    assert b"is stored without its output" in done.stderr
    again = place.run(*script)
    assert again.stdout == b"" and b"standard output is cut: of its 3000000 bytes 0 were kept" in again.stderr
    assert len(place.effects()) == 1


def test_without_descriptors_nothing_ran_and_it_may_be_tried_again(place):
    place.run("true", key="the store is there")
    said = set()
    for n in range(8, 32):
        done = limited(place, f"-n {n}", *place.script(""))
        if done.returncode == 0:
            break
        assert done.returncode in (5, TRY_LATER), (n, done)
        assert place.effects() == []
        said |= {line for line in done.stderr.splitlines() if done.returncode == TRY_LATER}
    assert done.returncode == 0 and len(place.effects()) == 1
    assert any(b"can't make a pipe" in line for line in said), said
