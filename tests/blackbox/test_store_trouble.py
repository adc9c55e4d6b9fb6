"""Stores that fail: nothing is forwarded without a claim, nothing is told that is not stored, and it goes on
by itself when the store is back."""

import os
import sqlite3
import subprocess
import threading

import pytest
from harness import HAPAX, PATIENCE_S, Answer, config_for, wait_until

SCOPE = "orders POST /orders -"
FAULT_EXIT = 87


class Trouble:
    """Makes the store of a running gateway fail, by the control file of the fault store."""

    def __init__(self, folder):
        self.path = folder / "trouble"
        self.uri = f"fault:control={self.path}:sqlite:{folder}/hapax.db"

    def begin(self, plan):
        written = self.path.with_suffix(".new")
        written.write_text(plan)
        written.rename(self.path)

    def end(self):
        self.begin("")


@pytest.fixture
def trouble(tmp_path):
    return Trouble(tmp_path)


@pytest.fixture
def gateway(upstream, start, trouble):
    return start(config_for(upstream), store=trouble.uri)


def assert_refused(answer):
    assert (answer.status, answer.problem, answer.marker) == (503, "store-unavailable", "rejected")
    assert int(answer.get("Retry-After")) >= 1 and answer.json()["retryable"] is True


def works_again(gateway, key):
    """The first answer that is none of trouble."""
    return wait_until(lambda: (a := gateway.post("/orders", key)).status != 503 and a, "the store is back")


def post_in_background(gateway, key):
    results = []
    thread = threading.Thread(target=lambda: results.append(gateway.post("/orders", key)))
    thread.start()
    return thread, results


def test_without_a_store_nothing_is_forwarded_and_it_recovers_by_itself(gateway, upstream, trouble):
    assert gateway.admin("/readyz").status == 200
    trouble.begin("every=1")
    for i in range(3):
        assert_refused(gateway.post("/orders", f"k-{i}"))
    ready = gateway.admin("/readyz")
    assert ready.status == 503 and b"injected fault" in ready.body
    assert gateway.admin("/healthz").status == 200
    assert gateway.metric("hapax_store_up") == 0 and gateway.metric("hapax_store_errors_total") >= 3
    assert gateway.request("GET", "/orders").status == 201  # what needs no store goes on
    assert len(upstream.effects()) == 1
    trouble.end()
    wait_until(lambda: gateway.admin("/readyz").status == 200, "it recovers without a request")
    assert gateway.metric("hapax_store_up") == 1
    assert [gateway.post("/orders", "k-0").marker for _ in range(2)] == ["executed", "replayed"]
    assert gateway.metric("hapax_requests_total", route="orders", outcome="store_error") == 3
    assert gateway.metric("hapax_running", route="orders") == 0


def test_answers_in_memory_are_replayed_while_the_store_is_down_or_refused_but_never_executed(gateway, upstream, trouble):
    first = gateway.post("/orders", "k")
    trouble.begin("every=1")
    for _ in range(3):
        again = gateway.post("/orders", "k")
        assert (again.status, again.body, again.marker) == (201, first.body, "replayed") or again.status == 503
    assert len(upstream.effects()) == 1


def test_an_answer_waits_for_the_store_before_it_is_told(gateway, upstream, trouble):
    release = threading.Event()
    upstream.answer = Answer(201, [], b"precious", wait=release)
    client, results = post_in_background(gateway, "k")
    wait_until(upstream.effects, "the upstream works")
    trouble.begin("every=1")
    release.set()
    wait_until(lambda: "settlement-delayed" in gateway.log_text(), "the answer can't be stored")
    assert results == [] and client.is_alive()
    trouble.end()
    client.join()
    assert (results[0].status, results[0].marker, results[0].body) == (201, "executed", b"precious")
    again = gateway.post("/orders", "k")
    assert (again.marker, again.body) == ("replayed", b"precious")
    assert len(upstream.effects()) == 1


def test_an_answer_that_the_store_does_not_take_for_long_is_unknown_and_then_known(gateway, upstream, trouble):
    release = threading.Event()
    upstream.answer = Answer(201, [], b"precious", wait=release)
    client, results = post_in_background(gateway, "k")
    wait_until(upstream.effects, "the upstream works")
    trouble.begin("every=1")
    release.set()
    client.join()  # ten seconds
    assert (results[0].status, results[0].problem, results[0].marker) == (502, "outcome-unknown", "unknown")
    assert_refused(gateway.post("/orders", "other"))
    trouble.end()
    answer = works_again(gateway, "k")
    assert (answer.status, answer.body) == (201, b"precious") and answer.marker in ("replayed", "attached")
    assert len(upstream.effects()) == 1


@pytest.mark.parametrize("answer, told", [(Answer(503, [], b"later"), "released"), (Answer(action="close"), "unknown")])
def test_other_outcomes_wait_for_the_store_too(gateway, upstream, trouble, answer, told):
    release = threading.Event()
    answer.wait = release
    upstream.answer = answer
    client, results = post_in_background(gateway, "k")
    wait_until(upstream.effects, "the upstream works")
    trouble.begin("every=1")
    release.set()
    wait_until(lambda: "settlement-delayed" in gateway.log_text(), "the outcome can't be stored")
    assert results == []
    trouble.end()
    client.join()
    assert results[0].marker == told
    upstream.answer = Answer()
    assert gateway.post("/orders", "k").marker == {"released": "executed", "unknown": "held"}[told]


def test_a_claim_that_was_perhaps_written_is_not_forwarded(start, upstream, trouble):
    """No store in use leaves a commit in doubt; one over a network may. Doubt ends as unknown, never as a run."""
    gateway = start(config_for(upstream, lease="500ms", wait="0"), store=trouble.uri)
    trouble.begin("fail=1,when=after,code=timeout")
    assert_refused(gateway.post("/orders", "k"))
    held = wait_until(lambda: (a := gateway.post("/orders", "k")).problem != "in-progress" and a, "the lease ends")
    assert (held.status, held.problem, held.marker) == (409, "outcome-unknown", "held")
    assert upstream.effects() == []


def test_an_answer_that_was_perhaps_written_is_kept_and_nothing_runs_twice(gateway, upstream, trouble):
    release = threading.Event()
    upstream.answer = Answer(201, [], b"precious", wait=release)
    client, results = post_in_background(gateway, "k")
    wait_until(upstream.effects, "the upstream works")
    trouble.begin("fail=1,when=after,code=timeout")
    release.set()
    client.join()
    assert (results[0].status, results[0].body) == (201, b"precious") or results[0].problem == "outcome-unknown"
    again = gateway.post("/orders", "k")
    assert (again.status, again.marker, again.body) == (201, "replayed", b"precious")
    assert len(upstream.effects()) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_gateway_that_dies_as_it_stores_an_answer_told_nothing_that_is_not_there(gateway, upstream, trouble, when):
    release = threading.Event()
    upstream.answer = Answer(201, [], b"precious", wait=release)
    with gateway.connect() as connection:
        connection.send(b"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
        wait_until(upstream.effects, "the upstream works")
        trouble.begin(f"kill=1,when={when}")
        release.set()
        assert connection.is_closed_by_peer()
    assert gateway.process.wait(PATIENCE_S) == FAULT_EXIT
    trouble.end()
    gateway.start()
    again = gateway.request("POST", "/orders", [("Idempotency-Key", "k")])
    if when == "before":
        assert (again.status, again.problem) == (409, "outcome-unknown")
    else:
        assert (again.status, again.marker, again.body) == (201, "replayed", b"precious")
    assert len(upstream.effects()) == 1


def test_a_route_may_ask_to_be_open_without_a_store(start, upstream, trouble):
    gateway = start(config_for(upstream, store_down="open"), store=trouble.uri)
    trouble.begin("every=1")
    for _ in range(2):
        answer = gateway.post("/orders", "k")
        assert (answer.status, answer.marker, answer.body) == (201, "unprotected", b'{"ok":true}')
    assert [r.body for r in upstream.effects()] == [b'{"amount":100}'] * 2
    trouble.end()
    wait_until(lambda: gateway.admin("/readyz").status == 200, "it recovers")
    assert [gateway.post("/orders", "k").marker for _ in range(2)] == ["executed", "replayed"]


def test_a_slow_store_is_waited_for(gateway, upstream, trouble):
    trouble.begin("delay=150")
    assert [gateway.post("/orders", "k").marker for _ in range(2)] == ["executed", "replayed"]


# --- Real trouble ----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no file system of its own can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder):
    with open(folder / "ballast", "wb", buffering=0) as ballast:
        size = 65536
        while size > 0:
            try:
                ballast.write(b"x" * size)
            except OSError:
                size //= 2


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(start, upstream, small_disk):
    gateway = start(config_for(upstream), store=f"sqlite:{small_disk}/hapax.db")
    upstream.answer = Answer(201, [], b"a" * 20000)
    assert gateway.post("/orders", "before").marker == "executed"
    fill(small_disk)
    refused = wait_until(lambda: (a := gateway.post("/orders", f"k-{len(upstream.effects())}")).status == 503 and a,
                         "the disk is full", 120)
    assert_refused(refused)
    ran = len(upstream.effects())
    for i in range(3):
        assert_refused(gateway.post("/orders", f"more-{i}"))
    assert len(upstream.effects()) == ran
    assert gateway.admin("/readyz").status == 503
    (small_disk / "ballast").unlink()
    wait_until(lambda: gateway.admin("/readyz").status == 200, "there is room again")
    assert gateway.post("/orders", "more-0").marker == "executed"
    assert gateway.post("/orders", "before").marker == "replayed"
    gateway.stop()
    gateway.start()
    assert gateway.post("/orders", "more-0").marker == "replayed"
    gateway.stop()


def test_an_answer_that_meets_a_full_disk_is_told_once_there_is_room(start, upstream, small_disk):
    gateway = start(config_for(upstream), store=f"sqlite:{small_disk}/hapax.db")
    release = threading.Event()
    upstream.answer = Answer(201, [], os.urandom(300_000), wait=release)
    client, results = post_in_background(gateway, "k")
    wait_until(upstream.effects, "the upstream works")
    fill(small_disk)
    release.set()
    wait_until(lambda: "settlement-delayed" in gateway.log_text(), "the answer finds no room")
    assert results == []
    (small_disk / "ballast").unlink()
    client.join()
    assert (results[0].status, results[0].marker) == (201, "executed")
    assert results[0].body == upstream.answer.body == gateway.post("/orders", "k").body
    assert len(upstream.effects()) == 1
    gateway.stop()


def test_a_store_that_became_read_only_refuses_and_goes_on_when_it_is_not(start, upstream, small_disk):
    gateway = start(config_for(upstream), store=f"sqlite:{small_disk}/hapax.db")
    assert gateway.post("/orders", "before").marker == "executed"
    for name in os.listdir(small_disk):
        if subprocess.run(["chattr", "+i", small_disk / name], capture_output=True).returncode != 0:
            break
    else:
        # A descriptor that is open may still be written on some file systems: then nothing has to be refused.
        gateway.post("/orders", "k-0")
        for name in os.listdir(small_disk):
            subprocess.run(["chattr", "-i", small_disk / name], check=True)
    gateway.stop()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = refused_start(gateway)
    assert done.returncode not in (0, 2) and "hapax.db" in done.stderr, done.stderr
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    gateway.start()
    assert gateway.post("/orders", "before").marker == "replayed"
    gateway.stop()


def refused_start(gateway, store=None):
    """`hapax serve` that is to fail at its start."""
    return subprocess.run(
        [HAPAX, "serve", "--config", gateway.config_path, "--listen", "127.0.0.1:0", "--admin", "off", "--store",
         store or gateway.store], capture_output=True, text=True, timeout=PATIENCE_S, cwd=gateway.folder)


def make_corrupt(path):
    path.write_bytes(b"this is no database at all " * 400)


def make_torn(path):
    """A database whose pages after the first are garbage."""
    data = path.read_bytes()
    path.write_bytes(data[:4096] + os.urandom(len(data) - 4096))


def make_cut(path):
    path.write_bytes(path.read_bytes()[:5000])


def make_newer(path):
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


def make_foreign(path):
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE customers (name TEXT)")
    db.close()


def make_folder(path):
    path.unlink()
    path.mkdir()


DAMAGE = {
    "no database": (make_corrupt, "not a database"),
    "torn pages": (make_torn, "malformed"),
    "cut short": (make_cut, "malformed"),
    "newer version": (make_newer, "newer"),
    "another application's": (make_foreign, "another application"),
    "a folder": (make_folder, "hapax.db"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_store_that_can_not_be_used_is_refused_at_the_start_and_left_as_it_is(gateway, tmp_path, name):
    damage, said = DAMAGE[name]
    for i in range(30):
        gateway.post("/orders", f"k-{i}", b'{"pad":"%s"}' % (b"x" * 500))
    gateway.stop()
    path = tmp_path / "hapax.db"
    for suffix in ("-wal", "-shm"):
        assert not path.with_name("hapax.db" + suffix).exists()
    damage(path)
    before = path.read_bytes() if path.is_file() else None
    done = refused_start(gateway, f"sqlite:{path}")
    assert done.returncode != 0 and done.stdout == ""
    assert "hapax.db" in done.stderr and said in done.stderr, done.stderr
    assert "listening" not in done.stderr
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_store_in_a_folder_that_does_not_exist_is_named(gateway, tmp_path):
    done = refused_start(gateway, f"sqlite:{tmp_path}/nowhere/hapax.db")
    assert done.returncode == 5 and "nowhere" in done.stderr
    assert not (tmp_path / "nowhere").exists()


def test_pages_that_rot_while_it_runs_execute_nothing_twice(start, upstream, tmp_path):
    gateway = start(config_for(upstream, limits="{replay_cache: 0}"))
    for i in range(40):
        gateway.post("/orders", f"k-{i}", b'{"pad":"%s"}' % (b"x" * 400))
    gateway.stop()
    gateway.start()
    with open(gateway.store_path, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(os.path.getsize(gateway.store_path) - 4096))
    answers = [gateway.post("/orders", f"k-{i}", b'{"pad":"%s"}' % (b"x" * 400)) for i in range(40)]
    assert {a.marker for a in answers} <= {"rejected", "replayed"}
    assert len(upstream.effects()) == 40


def test_a_store_locked_by_another_program_refuses_and_goes_on_after_it(start, upstream):
    gateway = start(config_for(upstream, timeouts="{store: 200ms}"))
    assert gateway.post("/orders", "before").marker == "executed"
    locker = sqlite3.connect(gateway.store_path, isolation_level=None)
    locker.execute("BEGIN EXCLUSIVE")
    for i in range(2):
        assert_refused(gateway.post("/orders", f"k-{i}"))
    assert gateway.admin("/readyz").status == 503
    locker.execute("ROLLBACK")
    locker.close()
    answer = works_again(gateway, "k-0")
    assert (answer.status, answer.marker) == (201, "executed")
    wait_until(lambda: gateway.admin("/readyz").status == 200, "it is ready")
    assert len(upstream.effects()) == 2


def test_a_short_lock_is_waited_for(gateway, upstream, tmp_path):
    locker = sqlite3.connect(tmp_path / "hapax.db", isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    client, results = post_in_background(gateway, "k")
    wait_until(lambda: gateway.metric("hapax_queued") == 1 or results, "the claim waits for the lock")
    assert results == [] and upstream.effects() == []
    locker.execute("COMMIT")
    client.join()
    locker.close()
    assert (results[0].status, results[0].marker) == (201, "executed")


def test_a_copy_taken_while_it_runs_is_a_store(gateway, upstream, tmp_path, start):
    """What the manual says about backups."""
    for i in range(20):
        gateway.post("/orders", f"k-{i}")
    with sqlite3.connect(tmp_path / "hapax.db") as source, sqlite3.connect(tmp_path / "copy.db") as target:
        source.backup(target)
    source.close()
    target.close()
    (tmp_path / "second").mkdir()
    second = start(config_for(upstream), folder=tmp_path / "second", store=f"sqlite:{tmp_path}/copy.db")
    assert {second.post("/orders", f"k-{i}").marker for i in range(20)} == {"replayed"}
    assert len(upstream.effects()) == 20


def test_a_claim_that_took_longer_than_its_lease_is_not_carried_out(start, upstream, trouble):
    gateway = start(config_for(upstream, lease="100ms"), store=trouble.uri)
    trouble.begin("delay=400")
    late = gateway.post("/orders", "k-late")
    assert (late.status, late.problem) == (503, "store-unavailable") and upstream.effects() == []
    trouble.end()
    # Given back where the lease allowed it, else unknown: never carried out by itself after all.
    again = gateway.post("/orders", "k-late")
    assert (again.marker, len(upstream.effects())) in [("executed", 1), ("held", 0)]
