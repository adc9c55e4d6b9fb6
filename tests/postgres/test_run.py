"""`hapax run` of several machines on one database. A machine is a process here: on PostgreSQL nothing but the database
is shared between two of them."""

import os
import re
import shlex
import subprocess

from harness import HAPAX, PATIENCE_S, wait_until


def command(folder, store, *options, then=""):
    effects = shlex.quote(str(folder / "effects"))
    script = f"echo $$ >> {effects}; echo effect $$; {then}"
    return ["hapax", "run", "--key", "k", "--store", store, *options, "--", "sh", "-c", script]


def environment():
    """Sanitizers and faketime of a caller stay out of the commands."""
    return {k: v for k, v in os.environ.items() if k != "HAPAX_STORE"} | {"PATH": f"{HAPAX.parent}:{os.environ['PATH']}"}


def start(words):
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment())


def finish(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def effects(folder):
    return (folder / "effects").read_text().splitlines() if (folder / "effects").exists() else []


def test_machines_that_start_together_execute_once(database, tmp_path):
    crowd = [start(command(tmp_path, database, "--quiet", "--wait", "1m")) for _ in range(10)]
    done = [finish(process) for process in crowd]
    assert len(effects(tmp_path)) == 1
    assert set(done) == {(0, f"effect {effects(tmp_path)[0]}\n".encode(), b"")}


def test_a_run_that_another_machine_has_is_waited_for_or_told_of(database, tmp_path):
    words = command(tmp_path, database, then=f"while [ ! -e {shlex.quote(str(tmp_path / 'go'))} ]; do sleep 0.02; done")
    first = start(words)
    wait_until(lambda: effects(tmp_path), "it has started")
    at = words.index("--")
    code, out, err = finish(start([*words[:at], "--wait", "0", *words[at:]]))
    assert (code, out) == (75, b"") and b"runs already for key k" in err
    second = start([*words[:at], "--wait", "1m", *words[at:]])
    assert b"waiting for its end" in second.stderr.readline()
    (tmp_path / "go").touch()
    assert finish(first)[:2] == finish(second)[:2] == (0, f"effect {effects(tmp_path)[0]}\n".encode())
    assert len(effects(tmp_path)) == 1


def test_a_killed_run_is_settled_with_the_printed_commands(database, tmp_path):
    first = start(command(tmp_path, database, then="exec sleep 1000"))
    wait_until(lambda: effects(tmp_path), "it has started")
    first.kill()
    first.communicate()
    code, out, err = finish(start(command(tmp_path, database, then="exec sleep 1000")))
    assert (code, out) == (75, b"") and b"nobody knows" in err
    commands = dict(re.findall(r"^  ([a-z ]+): +(hapax .*)$", err.decode(), re.M))
    for what in "to look at the record", "if it took effect":
        subprocess.run(commands[what], shell=True, env=environment(), check=True, timeout=PATIENCE_S, capture_output=True)
    assert finish(start(command(tmp_path, database, then="exec sleep 1000")))[:2] == (0, b"")
    assert len(effects(tmp_path)) == 1


def test_a_killed_run_is_settled_at_once(database, tmp_path):
    words = command(tmp_path, database, then="exec sleep 1000")
    first = start(words)
    wait_until(lambda: effects(tmp_path), "it has started")
    resolve = ["hapax", "keys", "resolve", "--done", "--store", database, "run", "k"]
    assert finish(start(resolve))[0] == 4  # it lives
    first.kill()
    first.communicate()
    assert finish(start(resolve))[0] == 0
    assert finish(start(words))[:2] == (0, b"")
    assert len(effects(tmp_path)) == 1


def test_without_a_server_nothing_runs(tmp_path):
    code, out, err = finish(start(command(tmp_path, "postgresql://me:word@127.0.0.1:1/none")))
    assert (code, out) == (5, b"") and effects(tmp_path) == []
    assert err and b"word" not in err
