"""`hapax call` on several machines: they share a store on PostgreSQL, and so the key and the answer."""

import shlex
import subprocess

import pytest
from caller import BODY, Caller, in_turn, keys_seen
from harness import PATIENCE_S, Answer, wait_until


@pytest.fixture
def callers(database, tmp_path):
    """Two machines: nothing in common but the database."""
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(Caller(tmp_path / name, store=database))
    return made


def test_another_machine_goes_on_with_the_key_and_has_the_answer(callers, upstream):
    one, two = callers
    upstream.answer = in_turn(Answer(action="reset"), Answer(action="hang"), Answer(body=b"done"))
    command = ["POST", upstream.url, "--op", "invoice 42", "-d", BODY, "-n", "1", "--timeout", "1h", "--max-time", "2h"]
    one.run(*command, code=75)
    killed = two.start(*command)
    wait_until(lambda: len(upstream.requests) == 2, "the second attempt")
    killed.kill()
    killed.communicate()
    assert one.run(*command).stdout == b"done"
    assert two.run(*command).stdout == b"done"
    assert len(upstream.requests) == 3 and len(set(keys_seen(upstream))) == 1
    two.run("POST", upstream.url, "--op", "invoice 42", "-d", "{}", code=4)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_not_become_the_databases(callers, upstream, closed):
    command = ["POST", upstream.url, "--op", "invoice 42", "-d", BODY]
    line = shlex.join(map(str, callers[0].command(*command)))
    for _ in range(2):
        subprocess.run(["sh", "-c", f"{line} {closed}"], env=callers[0].environment, check=True, capture_output=True,
                       timeout=PATIENCE_S)
    assert callers[1].run(*command).stdout == b'{"ok":true}'
    assert len(upstream.requests) == 1


def test_machines_that_call_at_once_send_once(callers, upstream):
    processes = [caller.start("POST", upstream.url, "--op", "invoice 42", "-d", BODY) for caller in callers * 5]
    ends = [process.communicate() + (process.returncode,) for process in processes]
    assert {(code, out) for out, _, code in ends} == {(0, b'{"ok":true}')}, ends
    assert len(upstream.requests) == 1
