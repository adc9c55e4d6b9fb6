"""`hapax run`: a command that takes effect once per key. Commands write a line to a file for each time that they
really run: those lines are the effects that are counted."""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from harness import HAPAX, PATIENCE_S, is_sanitized, wait_until

TRY_LATER = 75
EVERY_BYTE = bytes(range(256)) + b"\nno newline at the end\0"


class Place:
    """A folder with a store, and commands that leave a trace in it."""

    def __init__(self, folder):
        self.folder = folder
        self.store = f"sqlite:{folder}/it's a store.db"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HAPAX_")}
        self.env |= {"HAPAX_STORE": self.store, "PATH": f"{HAPAX.parent}:{os.environ['PATH']}"}
        self.started = []

    def effects(self):
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def script(self, text):
        """A shell script that has an effect and then does what the text says."""
        return ["sh", "-c", f"echo effect >> {shlex.quote(str(self.folder / 'effects'))}\n{text}"]

    def start(self, *words, options=(), key="k", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **more):
        process = subprocess.Popen(["hapax", "run", "--key", key, *options, "--", *words], env=self.env, stdin=stdin,
                                   stdout=stdout, stderr=subprocess.PIPE, cwd=self.folder, **more)
        self.started.append(process)
        return process

    def run(self, *words, code=0, data=None, **more):
        process = self.start(*words, stdin=subprocess.DEVNULL if data is None else subprocess.PIPE, **more)
        done = finish(process, data)
        assert done.returncode == code, done
        return done

    def once_started(self, process):
        """The command waits for the file `go` after it has written `here`; its number."""
        path = self.folder / "here"
        wait_until(lambda: process.poll() is not None or (path.exists() and path.read_text().endswith("\n")),
                   "the command has started")
        assert process.poll() is None or path.exists(), finish(process)
        return int((self.folder / "here").read_text())

    def waiting(self, then=""):
        return self.script(f"echo $$ > here; while [ ! -e go ]; do sleep 0.02; done; {then}")

    def state(self, key="k"):
        done = subprocess.run(["hapax", "keys", "show", "run", key], env=self.env, capture_output=True, text=True)
        found = re.search(r"^state +(\w+)$", done.stdout, re.M)
        return found.group(1) if found else "absent"

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def finish(process, data=None, patience_s=PATIENCE_S):
    out, err = process.communicate(data, timeout=patience_s)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def place(tmp_path):
    one = Place(tmp_path)
    yield one
    one.close()


def is_alive(pid):
    """A zombie is not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_for_end(pid):
    wait_until(lambda: not is_alive(pid), f"process {pid} ends")


# --- once ------------------------------------------------------------------------------------------


def test_a_hundred_processes_of_one_instant_are_one_execution(place):
    gate, opener = os.pipe()  # read by all of them: it ends for all when it is closed
    command = place.script("head -c 3000 /dev/urandom; head -c 3000 /dev/urandom >&2; exit 7")
    line = shlex.join(["hapax", "run", "--quiet", "--keep-failures", "--wait", "5m", "--key", "k", "--", *command])
    crowd = [subprocess.Popen(["sh", "-c", f"echo; read _ </dev/fd/{gate}; exec {line}"], env=place.env,
                              cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, pass_fds=[gate])
             for _ in range(20 if is_sanitized() else 100)]
    place.started += crowd
    for process in crowd:
        assert process.stdout.read(1) == b"\n"  # it stands before the gate
    os.close(opener)
    os.close(gate)
    done = [finish(process, patience_s=300) for process in crowd]
    assert len(place.effects()) == 1
    assert {d.returncode for d in done} == {7}, [d.stderr[-300:] for d in done if d.returncode != 7][:3]
    assert len({d.stdout for d in done}) == 1 and len(done[0].stdout) == 3000
    assert len({d.stderr for d in done}) == 1 and len(done[0].stderr) == 3000


def test_a_repeat_prints_what_was_printed_without_running(place):
    command = place.script("echo out; echo err >&2; echo $HAPAX_KEY $HAPAX_ATTEMPT")
    first = place.run(*command)
    again = place.run(*command)
    assert first.stdout == again.stdout == b"out\nk 1\n"
    assert first.stderr == b"err\n"
    note, rest = again.stderr.split(b"\n", 1)
    assert re.fullmatch(rb"hapax run: already done \(begun 20\S+Z, exit code 0\): not run again, printing its output", note)
    assert rest == b"err\n"
    assert place.run(*command, options=["-q"]).stderr == b"err\n"
    assert len(place.effects()) == 1
    place.run(*command, key="another")
    assert len(place.effects()) == 2


def test_bytes_are_exact(place):
    (place.folder / "bytes").write_bytes(EVERY_BYTE)
    (place.folder / "other").write_bytes(EVERY_BYTE[::-1])
    for options in ([], ["--quiet"]):
        done = place.run(*place.script("cat bytes; cat other >&2"), options=["-q"])
        assert (done.stdout, done.stderr) == (EVERY_BYTE, EVERY_BYTE[::-1])
    assert len(place.effects()) == 1


BOTH_STREAMS = """
import os
for i in range(64):
    os.write(1, bytes([i]) * 65536)
    os.write(2, bytes([255 - i]) * 65536)
"""


def both_streams():
    return (b"".join(bytes([i]) * 65536 for i in range(64)), b"".join(bytes([255 - i]) * 65536 for i in range(64)))


def test_much_on_both_streams_passes_and_is_kept_whole(place):
    command = [sys.executable, "-c", BOTH_STREAMS]
    for _ in range(2):
        done = place.run(*command, options=["-q", "--keep-output", "8MiB"])
        assert (done.stdout, done.stderr) == both_streams()


def test_output_past_the_limit_passes_and_a_repeat_says_that_it_is_cut(place):
    command = [sys.executable, "-c", BOTH_STREAMS]
    out, err = both_streams()
    done = place.run(*command, options=["-q", "--keep-output", "100kB"])
    assert (done.stdout, done.stderr) == (out, err)
    again = place.run(*command, options=["-q"])
    assert out.startswith(again.stdout)
    kept = re.search(rb"^(.*)hapax run: standard output is cut: of its 4194304 bytes (\d+) were kept \(--keep-output\)\n"
                     rb"hapax run: standard error is cut: of its 4194304 bytes (\d+) were kept \(--keep-output\)\n$",
                     again.stderr, re.S)
    assert kept and err.startswith(kept.group(1))
    assert [int(kept.group(2)), int(kept.group(3))] == [len(again.stdout), len(kept.group(1))]
    assert len(again.stdout) + len(kept.group(1)) == 100_000


def test_a_pipe_that_does_not_block_gets_all_of_it(place):
    for _ in range(2):
        ours, theirs = os.pipe()
        os.set_blocking(theirs, False)
        process = place.start("head", "-c", "900000", "/dev/zero", stdout=theirs)
        os.close(theirs)
        with open(ours, "rb") as reader:
            assert reader.read() == bytes(900000)
        assert finish(process).returncode == 0


def test_standard_input_is_the_commands(place):
    assert place.run(*place.script("cat"), data=EVERY_BYTE).stdout == EVERY_BYTE
    assert place.run(*place.script("cat"), data=b"other").stdout == EVERY_BYTE
    assert len(place.effects()) == 1


def test_the_environment_and_the_descriptors_are_the_callers(place):
    place.env |= {"HAPAX_KEY": "outer", "HAPAX_ATTEMPT": "9", "TZ": "Asia/Tokyo"}
    show = [sys.executable, "-c", "import os; print(sorted(open('/proc/self/environ').read().split(chr(0))), "
            "os.listdir('/proc/self/fd'), os.getcwd())"]
    direct = subprocess.run(show, env=place.env | {"HAPAX_KEY": "day-2026", "HAPAX_ATTEMPT": "1"}, cwd=place.folder,
                            capture_output=True, stdin=subprocess.DEVNULL, check=True)
    year = subprocess.run(["date", "-u", "+%Y"], capture_output=True, text=True, check=True).stdout.strip()
    done = place.run(*show, key="day-{date:%Y@Europe/Berlin}")
    assert done.stdout.replace(f"day-{year}".encode(), b"day-2026") == direct.stdout


def test_the_commands_signals_are_as_they_would_be_without_us(place):
    show = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]
    direct = subprocess.run(show, env=place.env, capture_output=True, check=True)
    assert place.run(*show).stdout == direct.stdout


# --- failures --------------------------------------------------------------------------------------


def test_a_failure_frees_the_key_and_is_run_again(place):
    command = place.script("echo out; exit 3")
    for _ in range(2):
        done = place.run(*command, code=3)
        assert done.stdout == b"out\n" and b"failed with exit code 3: the next run" in done.stderr
    assert len(place.effects()) == 2
    assert place.state() == "absent"


def test_a_kept_failure_is_repeated(place):
    command = place.script("echo out; exit 3")
    for _ in range(2):
        assert place.run(*command, code=3, options=["--keep-failures"]).stdout == b"out\n"
    assert place.run(*command, code=3).stdout == b"out\n"
    assert len(place.effects()) == 1


def test_death_by_a_signal_is_a_failure(place):
    for kept, effects in ((), 2), (["--keep-failures"], 3):
        for _ in range(2):
            assert place.run(*place.script("kill -KILL $$"), code=128 + signal.SIGKILL, options=kept)
        assert len(place.effects()) == effects


def test_a_command_that_is_not_there_leaves_the_key_free(place):
    (place.folder / "plain").write_text("text")
    assert b"can't run ./absent: No such file" in place.run("./absent", code=127, options=["--keep-failures"]).stderr
    assert place.state() == "absent"
    assert b"can't run ./plain: Permission denied" in place.run("./plain", code=126, options=["--keep-failures"]).stderr
    assert place.state() == "absent"
    place.run("true")


def test_what_is_wrong_on_the_command_line_is_said_and_nothing_runs(place):
    cases = [
        ([], "x" * 256, "longer than 255 bytes"), ([], "", "needs a key"), ([], "a\tb", "other than printable ASCII"),
        ([], "schlüssel", "other than printable ASCII"), ([], "{date:%H%z}", "%z can't be in a key"),
        ([], "{date:%H@Mars/Olympus}", "no time zone Mars/Olympus"), (["--ttl", "0"], "k", "--ttl is a duration"),
        (["--ttl", "soon"], "k", "--ttl is a duration"),
        (["--timeout", "106751991167d"], "k", "--timeout is a duration"), (["--wait", "10"], "k", "--wait is a duration"),
        (["--lease", "10ms"], "k", "from 1s to 3650d"), (["--keep-output", "17MiB"], "k", "--keep-output is a size"),
        (["--on-unknown", "guess"], "k", "one of hold|retry"), (["--store", "memory:"], "k", "would forget"),
    ]
    for options, key, message in cases[::4] if is_sanitized() else cases:  # a process takes long there, and says the same
        done = place.run(*place.script(""), code=2, options=options, key=key)
        assert message in done.stderr.decode(), done
    assert subprocess.run([HAPAX, "run", "--", "true"], capture_output=True, env=place.env).returncode == 2
    assert place.effects() == []


def test_options_of_the_command_are_not_ours(place):
    done = subprocess.run(["hapax", "run", "--key", "k", "sh", "-c", "echo $0 $@", "-q", "--help", "--", "-x"],
                          env=place.env, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"-q --help -- -x\n")


def test_without_a_store_nothing_runs(place):
    place.run(*place.script(""), code=5, options=["--store", "sqlite:/nonexistent/hapax.db"])
    (place.folder / "hapax.db").write_bytes(b"this is no database" * 1000)
    assert place.run(*place.script(""), code=5, options=["--store", "sqlite:hapax.db"]).stderr
    assert place.effects() == []


# --- other words -----------------------------------------------------------------------------------


def test_other_words_under_a_key_are_refused_unless_they_may_differ(place):
    place.run(*place.script("echo first"))
    done = place.run(*place.script("echo second"), code=4)
    assert done.stdout == b"" and b"key k was used for another command or other arguments" in done.stderr
    assert place.run(*place.script("echo second"), options=["--ignore-args"]).stdout == b"first\n"
    place.run("echo", "a b", key="words")
    place.run("echo", "a", "b", key="words", code=4)
    assert len(place.effects()) == 1


def test_other_words_are_refused_while_the_first_runs(place):
    first = place.start(*place.waiting())
    place.once_started(first)
    place.run("true", code=4)
    (place.folder / "go").touch()
    assert finish(first).returncode == 0


# --- at the same time ------------------------------------------------------------------------------


def test_a_concurrent_run_waits_for_the_end_or_is_sent_away(place):
    command = place.waiting("echo done")
    first = place.start(*command)
    place.once_started(first)
    away = place.run(*command, code=TRY_LATER, options=["--wait", "0"])
    assert b"the command runs already for key k, since 20" in away.stderr
    assert b"try again later" in place.run(*command, code=TRY_LATER, options=["--wait", "300ms"]).stderr
    second = place.start(*command, options=["--wait", "1m"])
    assert second.stderr.readline() == b"hapax run: the command runs already for this key: waiting for its end\n"
    (place.folder / "go").touch()
    assert finish(first).stdout == finish(second).stdout == b"done\n"
    assert len(place.effects()) == 1


def test_who_waits_for_a_run_that_fails_runs_it(place):
    command = place.waiting("[ $(wc -l < effects) = 2 ] && echo done")
    first = place.start(*command)
    place.once_started(first)
    second = place.start(*command, options=["--wait", "1m"])
    assert b"waiting for its end" in second.stderr.readline()
    (place.folder / "go").touch()
    assert finish(first).returncode == 1
    done = finish(second)
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert len(place.effects()) == 2


def test_a_signal_ends_a_run_that_waits(place):
    first = place.start(*place.waiting())
    place.once_started(first)
    second = place.start(*place.waiting(), options=["--wait", "1m"])
    assert b"waiting" in second.stderr.readline()
    second.send_signal(signal.SIGTERM)
    done = finish(second)
    assert done.returncode == 128 + signal.SIGTERM
    assert b"ended by signal 15 (Terminated) before the command was started" in done.stderr
    (place.folder / "go").touch()
    assert finish(first).returncode == 0


# --- signals and time ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command_which_decides(place, number):
    command = place.script("trap 'echo got; exit 0' TERM INT HUP USR1; echo $$ > here; while :; do sleep 0.02; done")
    first = place.start(*command)
    place.once_started(first)
    first.send_signal(number)
    done = finish(first)
    assert (done.returncode, done.stdout) == (0, b"got\n")
    assert place.run(*command).stdout == b"got\n"
    assert len(place.effects()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_ends_by_the_signal_frees_its_key(place, number):
    first = place.start(*place.waiting())
    pid = place.once_started(first)
    first.send_signal(number)
    assert finish(first).returncode == 128 + number
    assert not is_alive(pid) and place.state() == "absent"


def test_an_ignored_signal_stays_ignored(place):
    """As under nohup: for the command, and for a run that waits."""
    first, second = [place.start(*place.waiting("echo survived"), options=["--wait", "1m"],
                                 preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) for _ in range(2)]
    place.once_started(first)
    ready, _, _ = select.select([first.stderr, second.stderr], [], [], PATIENCE_S)
    assert b"waiting for its end" in ready[0].readline()
    for process in first, second:
        process.send_signal(signal.SIGHUP)
    (place.folder / "go").touch()
    for process in first, second:
        done = finish(process)
        assert (done.returncode, done.stdout) == (0, b"survived\n"), done
    assert len(place.effects()) == 1


@pytest.mark.parametrize("disposition", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_parent_that_ignores_its_children_does_not_matter(place, disposition):
    place.run("sh", "-c", "exit 3", code=3, preexec_fn=lambda: signal.signal(signal.SIGCHLD, disposition))


def test_a_timeout_ends_the_whole_group(place):
    command = place.script("trap 'exit 1' TERM; (trap '' TERM; echo $$ > parent; while :; do sleep 0.02; done) & "
                           "echo $! > here; echo before; wait")
    start = place.start(*command, options=["--timeout", "1s"])
    grandchild = place.once_started(start)
    done = finish(start)
    assert (done.returncode, done.stdout) == (124, b"before\n")
    assert b"time is over" in done.stderr
    wait_for_end(grandchild)
    assert place.state() == "absent"


def test_a_command_that_ignores_its_end_is_killed(place):
    command = place.script("trap '' TERM; echo $$ > here; while :; do sleep 0.02; done")
    start = place.start(*command, options=["--timeout", "500ms", "--kill-after", "500ms", "--keep-failures"])
    pid = place.once_started(start)
    assert finish(start).returncode == 124
    assert not is_alive(pid)
    assert place.run(*command, code=124).stdout == b""
    assert len(place.effects()) == 1


def test_in_time_is_in_time(place):
    assert place.run(*place.script("echo in time"), options=["--timeout", "1m"]).stdout == b"in time\n"


def test_what_a_command_leaves_behind_is_not_waited_for(place):
    done = place.run(*place.script("sleep 1000 & echo $! > here; echo done"))
    os.kill(int((place.folder / "here").read_text()), signal.SIGKILL)
    assert done.stdout == b"done\n"
    assert b"something it started still holds its output" in done.stderr
    assert place.run(*place.script("sleep 1000 & echo $! > here; echo done")).stdout == b"done\n"


def test_a_late_reader_gets_all_of_it(place):
    """More than our pipe holds, from a command that is long gone, while something else holds its output open."""
    first = place.start(*place.script("sleep 1000 & echo $! > left; echo $$ > here; head -c 110000 /dev/zero"))
    pid = place.once_started(first)
    wait_for_end(pid)
    time.sleep(2.5)  # longer than it waits for what was left behind; only shows what a wrong one would cut
    done = finish(first)
    os.kill(int((place.folder / "left").read_text()), signal.SIGKILL)
    assert (done.returncode, done.stdout) == (0, bytes(110000))


# --- cut off ---------------------------------------------------------------------------------------


def cut_off(place, command, key="k", **more):
    """Run it until it has started, then kill hapax."""
    first = place.start(*command, key=key, **more)
    pid = place.once_started(first)
    first.kill()
    first.wait()
    wait_for_end(pid)
    (place.folder / "here").unlink()


def printed_commands(done):
    """{what it is for: the command as it stands}"""
    return dict(re.findall(r"^  ([a-z ]+): +(hapax .*)$", done.stderr.decode(), re.M))


def paste(place, line, code=0):
    done = subprocess.run(line, shell=True, env={k: v for k, v in place.env.items() if k != "HAPAX_STORE"},
                          capture_output=True, cwd="/", timeout=PATIENCE_S)
    assert done.returncode == code, done
    return done


def test_a_run_that_was_killed_is_held_until_somebody_settles_it(place):
    command = place.waiting()
    key = "-it's cut off"
    cut_off(place, command, key=key)
    held = place.run(*command, code=TRY_LATER, key=key)
    assert b"nobody knows whether the command took effect" in held.stderr and held.stdout == b""
    commands = printed_commands(held)
    assert set(commands) == {"to look at the record", "if it took effect", "if it did not"}
    assert re.search(rb"^state +unknown$", paste(place, commands["to look at the record"]).stdout, re.M)
    paste(place, commands["if it took effect"])
    done = place.run(*command, key=key)
    assert done.stdout == b"" and b"settled by hand, exit code 0" in done.stderr
    assert len(place.effects()) == 1
    paste(place, commands["if it did not"], code=4)  # it is settled


def test_a_run_that_is_settled_as_not_executed_runs_again(place):
    cut_off(place, place.waiting())
    held = place.run(*place.waiting(), code=TRY_LATER)
    paste(place, printed_commands(held)["if it did not"])
    (place.folder / "go").touch()
    place.run(*place.waiting())
    assert len(place.effects()) == 2


def test_an_answer_given_by_hand_is_standard_output(place):
    cut_off(place, place.waiting())
    held = place.run(*place.waiting(), code=TRY_LATER)
    paste(place, printed_commands(held)["if it took effect"] + " --body 'it was on the tape'")
    assert place.run(*place.waiting()).stdout == b"it was on the tape"


def test_the_next_attempt_is_told_its_number(place):
    command = place.waiting("echo attempt $HAPAX_ATTEMPT")
    cut_off(place, command)
    cut_off(place, command, options=["--on-unknown", "retry"])
    (place.folder / "go").touch()
    assert place.run(*command, options=["--on-unknown", "retry"]).stdout == b"attempt 3\n"
    assert place.run(*command).stdout == b"attempt 3\n"
    assert len(place.effects()) == 3


def test_a_claim_is_renewed_while_the_command_runs(place):
    first = place.start(*place.waiting(), options=["--lease", "6s"])
    place.once_started(first)

    def lease_end():
        done = subprocess.run(["hapax", "keys", "show", "--json", "run", "k"], env=place.env, capture_output=True, check=True)
        return json.loads(done.stdout)["lease_until"]

    at_first = lease_end()
    wait_until(lambda: lease_end() > at_first, "the claim is renewed")
    (place.folder / "go").touch()
    assert finish(first).returncode == 0


# --- a claim that ran out --------------------------------------------------------------------------


def fail_store(place, plan):
    (place.folder / "plan.new").write_text(plan)
    (place.folder / "plan.new").rename(place.folder / "plan")


@contextlib.contextmanager
def a_claim_that_ran_out(place, then="", options=()):
    """A run that could not reach its store for longer than its lease, as on a host that slept. (To stop the process
    would be simpler, but then it may hold the file's lock.)"""
    faulty = f"fault:control={place.folder}/plan:{place.store}"
    first = place.start(*place.waiting(then), options=["--lease", "1s", "--store", faulty, *options])
    place.once_started(first)
    fail_store(place, "hold=1")

    def is_unknown():
        done = finish(place.start(*place.waiting(then), options=["--wait", "0"]))
        assert done.returncode == TRY_LATER
        return b"nobody knows" in done.stderr

    wait_until(is_unknown, "the claim runs out")
    yield first
    fail_store(place, "")


def test_the_end_is_stored_when_nobody_has_run_it_again(place):
    with a_claim_that_ran_out(place, "echo done") as first:
        (place.folder / "go").touch()
    done = finish(first)
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert b"had run out while the command ran" in done.stderr
    assert place.run(*place.waiting("echo done")).stdout == b"done\n"
    assert len(place.effects()) == 1


@pytest.mark.parametrize("options", [[], ["--keep-failures"]])
def test_a_failure_after_the_claim_ran_out_is_said_loudly(place, options):
    with a_claim_that_ran_out(place, "exit 3", options) as first:
        (place.folder / "go").touch()
    done = finish(first)
    assert done.returncode == TRY_LATER
    assert b"THE COMMAND RAN and ended with exit code 3, BUT THAT COULD NOT BE RECORDED: its claim had run out" in done.stderr
    paste(place, printed_commands(done)["if it did not"])
    assert place.state() == "absent"


def test_who_was_overtaken_is_told_and_changes_nothing(place):
    with a_claim_that_ran_out(place, "echo $HAPAX_ATTEMPT") as first:
        (place.folder / "go").touch()
        assert place.run(*place.waiting("echo $HAPAX_ATTEMPT"), options=["--on-unknown", "retry"]).stdout == b"2\n"
    done = finish(first)
    assert (done.returncode, done.stdout) == (TRY_LATER, b"1\n")
    assert b"THE COMMAND RAN and ended with exit code 0, BUT" in done.stderr
    assert place.run(*place.waiting("echo $HAPAX_ATTEMPT")).stdout == b"2\n"


def test_an_attempt_that_overtook_and_was_cut_off_stays_unknown(place):
    with a_claim_that_ran_out(place) as first:
        second = place.start(*place.waiting(), options=["--on-unknown", "retry"])
        wait_until(lambda: len(place.effects()) == 2, "the second attempt has started")
        second.kill()
        second.wait()
        assert b"nobody knows" in place.run(*place.waiting(), code=TRY_LATER, options=["--wait", "1m"]).stderr
        (place.folder / "go").touch()
    assert finish(first).returncode == TRY_LATER
    assert place.state() == "unknown"


# --- a store that fails at the end -------------------------------------------------------------------


def test_a_store_that_comes_back_in_time_has_the_end(place):
    store = f"fault:control={place.folder}/plan:sqlite:{place.folder}/x.db"
    first = place.start(*place.waiting("echo done"), options=["--store", store])
    place.once_started(first)
    fail_store(place, "every=1")
    (place.folder / "go").touch()
    assert b"can't store the end of the command" in first.stderr.readline()
    fail_store(place, "")
    done = finish(first)
    assert (done.returncode, done.stdout) == (0, b"done\n")
    again = place.run(*place.waiting("echo done"), options=["--store", f"sqlite:{place.folder}/x.db"])
    assert again.stdout == b"done\n" and len(place.effects()) == 1


def test_a_store_that_stays_away_is_said_loudly(place):
    store = f"fault:control={place.folder}/plan:sqlite:{place.folder}/x.db"
    first = place.start(*place.waiting("echo done"), options=["--store", store, "--lease", "1s"])
    place.once_started(first)
    fail_store(place, "every=1")
    (place.folder / "go").touch()
    done = finish(first)
    assert (done.returncode, done.stdout) == (TRY_LATER, b"done\n")
    assert b"THE COMMAND RAN and ended with exit code 0, BUT THAT COULD NOT BE RECORDED" in done.stderr


# --- our own output --------------------------------------------------------------------------------


def test_a_reader_that_leaves_does_not_end_the_command(place):
    command = place.script("echo first; echo $$ > here; while [ ! -e go ]; do sleep 0.02; done; "
                           "head -c 300000 /dev/zero; echo finished > end")
    first = place.start(*command)
    place.once_started(first)
    assert first.stdout.readline() == b"first\n"
    first.stdout.close()
    (place.folder / "go").touch()
    assert first.wait(PATIENCE_S) == 0
    assert (place.folder / "end").read_text() == "finished\n"
    assert place.run(*command).stdout == b"first\n" + bytes(300000)


def test_output_that_can_not_be_written_is_no_success(place):
    with open("/dev/full", "w") as full:
        for _ in range(2):
            done = place.run(*place.script("echo out"), code=1, stdout=full)
            assert b"can't write all of the output: No space left on device" in done.stderr
    assert place.run(*place.script("echo out")).stdout == b"out\n"
    assert len(place.effects()) == 1


def test_closed_standard_streams_do_not_become_the_stores(place):
    command = shlex.join(["hapax", "run", "--key", "k", "--", *place.script("echo out; echo err >&2; cat")])
    done = subprocess.run(["sh", "-c", f"{command} <&- >&- 2>&-"], env=place.env, cwd=place.folder, timeout=PATIENCE_S)
    assert done.returncode == 0
    assert place.run(*place.script("echo out; echo err >&2; cat"), options=["-q"]).stdout == b"out\n"
    assert len(place.effects()) == 1


# --- a terminal ------------------------------------------------------------------------------------


class Terminal:
    """`hapax run` in the foreground of a terminal of its own; then a script goes on, if there is one."""

    def __init__(self, place, *words, then=None):
        line = shlex.join(["hapax", "run", "--key", "k", "--", *words])
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(place.folder)
                os.execvpe("sh", ["sh", "-c", f"{line}; {then}" if then else f"exec {line}"], place.env)
            finally:
                os._exit(99)
        self.seen = b""

    def read_until(self, text):
        end = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert select.select([self.fd], [], [], max(0, end - time.monotonic()))[0], self.seen
            self.seen += os.read(self.fd, 4096)

    def type(self, text):
        os.write(self.fd, text)

    def finish(self):
        with contextlib.suppress(OSError):  # EIO: nobody has it open any more
            while select.select([self.fd], [], [], PATIENCE_S)[0]:
                piece = os.read(self.fd, 4096)
                if not piece:
                    break
                self.seen += piece
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def test_a_command_may_read_the_terminal(place):
    terminal = Terminal(place, *place.script("printf 'name? '; read name; echo hello $name; read name; echo bye $name"))
    terminal.read_until(b"name? ")
    terminal.type(b"anna\n")
    terminal.read_until(b"hello anna")
    terminal.type(b"bert\n")
    terminal.read_until(b"bye bert")
    assert terminal.finish() == 0


def test_the_terminal_is_given_back(place):
    terminal = Terminal(place, *place.script("printf 'name? '; read name"), then="printf 'shell? '; read line; echo $line")
    terminal.read_until(b"name? ")
    terminal.type(b"anna\n")
    terminal.read_until(b"shell? ")
    terminal.type(b"xyzzy\n")
    assert terminal.finish() == 0
    assert terminal.seen.count(b"xyzzy") == 2  # echoed, and printed by the shell


def test_a_command_may_set_the_terminal_up(place):
    terminal = Terminal(place, *place.script("stty -echo; printf 'secret? '; read secret; stty echo; echo got $secret"))
    terminal.read_until(b"secret? ")
    terminal.type(b"xyzzy\n")
    terminal.read_until(b"got xyzzy")
    assert terminal.finish() == 0
    assert terminal.seen.count(b"xyzzy") == 1  # not echoed


@pytest.mark.parametrize("reads", [True, False])
def test_ctrl_c_ends_the_command(place, reads):
    wait = "read line" if reads else "while :; do sleep 0.02; done"
    terminal = Terminal(place, *place.script(f"printf 'here'; {wait}"))
    terminal.read_until(b"here")
    if reads:
        terminal.type(b"\x1a")  # Ctrl-Z: only a command that has the terminal is told; it goes on
        terminal.read_until(b"would lose its claim")
    terminal.type(b"\x03")
    assert terminal.finish() == 128 + signal.SIGINT
    assert place.state() == "absent"


# --- periods and stores ----------------------------------------------------------------------------


def test_an_hour_that_comes_twice_runs_once(place):
    if is_sanitized():
        pytest.skip("faketime can't be loaded under a sanitizer; the unit test of templates has these instants, too")
    if shutil.which("faketime") is None:
        pytest.skip("there is no faketime here")
    command = place.script("echo $HAPAX_KEY")
    for utc in "00:30:00", "01:30:00":  # 02:30 in Berlin, twice
        process = subprocess.run(
            ["faketime", "-f", f"@2026-10-25 {utc}", "hapax", "run", "--key",
             "hour-{date:%Y-%m-%dT%H@Europe/Berlin}", "--", "env", "-u", "LD_PRELOAD", *command],
            env=place.env | {"TZ": "UTC", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}, cwd=place.folder, capture_output=True,
            timeout=PATIENCE_S)
        assert (process.returncode, process.stdout) == (0, b"hour-2026-10-25T02\n"), process
    assert len(place.effects()) == 1


def test_after_its_ttl_a_key_is_free(place):
    place.run(*place.script(""), options=["--ttl", "1ms"])
    wait_until(lambda: place.state() == "absent", "it expires")
    place.run(*place.script(""), options=["--ttl", "1ms"])
    assert len(place.effects()) == 2


@pytest.fixture
def stranger():
    """A user that is not root, with a home and the program: as which default stores can be tried."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hapax-home-"))
    folder.chmod(0o755)
    shutil.copy2(HAPAX, folder / "hapax")
    (folder / "home").mkdir()
    env = {"HOME": str(folder / "home"), "PATH": f"{folder}:{os.environ['PATH']}"}
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    if user:
        os.chown(folder / "home", 65534, 65534)

    def run(*words, **more):
        return subprocess.run(["hapax", *words], env=env | more, cwd="/", capture_output=True, timeout=PATIENCE_S,
                              stdin=subprocess.DEVNULL, **user)

    run.home = folder / "home"
    yield run
    shutil.rmtree(folder)


def test_without_a_name_the_store_is_a_file_of_ones_own(stranger):
    for more, path in ({}, ".local/state/hapax"), ({"XDG_STATE_HOME": f"{stranger.home}/x/y"}, "x/y/hapax"), (
            {"XDG_STATE_HOME": "relative"}, ".local/state/hapax"):
        done = stranger("run", "--key", "k", "--", "echo", "out", **more)
        assert (done.returncode, done.stdout) == (0, b"out\n"), done
        folder = stranger.home / path
        assert (folder / "hapax.db").exists()
        assert folder.stat().st_mode & 0o777 == 0o700 and folder.parent.stat().st_mode & 0o777 == 0o700


def test_roots_own_store_is_the_machines(place):
    """In a mount namespace of its own, so that the machine's is left alone."""
    script = "mount -t tmpfs none /var/lib && hapax run --key k -- echo out && stat -c %a /var/lib/hapax && ls /var/lib/hapax"
    env = {k: v for k, v in place.env.items() if k != "HAPAX_STORE"} | {"XDG_STATE_HOME": str(place.folder)}
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], env=env, capture_output=True, timeout=PATIENCE_S)
    if b"unshare" in done.stderr or b"mount:" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr[:100]!r}")
    assert (done.returncode, done.stdout) == (0, b"out\n700\nhapax.db\n"), done


def test_a_place_that_can_not_be_written_is_said_and_nothing_runs(stranger):
    stranger.home.chmod(0o555)
    done = stranger("run", "--key", "k", "--", "echo", "out")
    assert (done.returncode, done.stdout) == (5, b"")
    assert b"can't make the folder" in done.stderr and b"--store" in done.stderr
    done = stranger("run", "--key", "k", "--store", f"sqlite:{stranger.home}/hapax.db", "--", "echo", "out")
    assert (done.returncode, done.stdout) == (5, b"") and done.stderr
