"""The functions of sql/functions.sql, the library, the gateway and the commands on one table: they agree about identities,
fingerprints, states and answers."""

import json
import signal
import subprocess

import pytest
from harness import BUILD, HAPAX, config_for, wait_until
from operations import begin, complete, count, do_once, key, lookup, refused, run, session, store  # noqa: F401

PAY_ONCE = BUILD / "examples/pay_once"


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


def test_the_library_finds_what_the_functions_did(store, session, key, ledger):
    do_once(session, key, "by a function", fingerprint="10.00")
    assert run([PAY_ONCE, store, ledger, key, "10.00"]) == "by a function (once, not again)\n"
    run([PAY_ONCE, store, ledger, key, "11.00"], 4)
    assert not ledger.exists()


def test_the_functions_find_what_the_library_did(store, session, key, ledger):
    receipt = run([PAY_ONCE, store, ledger, key, "10.00"])
    found = begin(session, key, fingerprint="10.00")
    assert (found["verdict"], found["answer"] + "\n", found["status"]) == ("replay", receipt, 0)
    assert begin(session, key, fingerprint="11.00")["verdict"] == "mismatch"
    session.rollback()


def test_a_run_of_the_library_is_in_progress_and_then_unknown(store, session, key, ledger):
    with subprocess.Popen([PAY_ONCE, store, ledger, key, "10.00", "600"]) as process:
        try:
            wait_until(ledger.exists, "the library's run has begun")
            assert begin(session, key, fingerprint="10.00")["verdict"] == "in_progress"
            assert begin(session, key, fingerprint="11.00")["verdict"] == "mismatch"
            with refused("55000"):
                complete(session, key, "stolen")
            session.rollback()
        finally:
            process.send_signal(signal.SIGKILL)
    run([PAY_ONCE, store, ledger, key, "10.00"], 75)
    assert begin(session, key)["verdict"] == "unknown"
    assert lookup(session, key)[0] == "unknown"
    run([HAPAX, "keys", "resolve", "--store", store, "orders", key, "--done", "--body", "found out"])
    assert begin(session, key)["answer"] == "found out"
    session.rollback()


def test_a_run_past_its_lease_is_unknown(session, key):
    session.execute("""INSERT INTO hapax.record (digest, serial, state, fingerprint_version, attempt, owner, claimed_ms,
                           lease_ms, ended_ms, expires_ms, ttl_ms, scope, key)
                       VALUES (hapax.identity('orders', %s), nextval('hapax.serial'), 1, 0, 1, 1, 0, 1, 0, 0, 1000,
                           'orders', %s)""", (key, key))
    assert begin(session, key)["verdict"] == "unknown"
    session.rollback()


IDENTITIES = [("s", "k"), ("orders POST /orders -", "order-17"), ("Zahlungen für Käse", "a \"b\" 'c' ~!"),
              ("s" * 4096, "k" * 255), ("ab", "c"), ("a", "bc"), (" ", " "), ("𝔘", "{}|")]


def test_the_commands_show_what_the_functions_made(store, session, key):
    for scope, name in IDENTITIES:
        begin(session, name, scope=scope)
        complete(session, name, json.dumps(scope), scope=scope)
    session.commit()
    for scope, name in IDENTITIES:
        shown = json.loads(run([HAPAX, "keys", "show", "--store", store, "--json", scope, name]))
        assert (shown["state"], shown["scope"], shown["key"], shown["attempt"]) == ("done", scope, name, 1)
        digest = session.execute("SELECT encode(hapax.identity(%s, %s), 'hex')", (scope, name)).fetchone()[0]
        assert shown["id"] == digest
    assert run([HAPAX, "keys", "show", "--store", store, "--body", scope, name]) == json.dumps(scope)
    listed = run([HAPAX, "keys", "list", "--store", store, "--json", "--scope", scope, "--key", name])
    assert json.loads(listed)["id"] == digest
    run([HAPAX, "keys", "forget", "--yes", "--store", store, *IDENTITIES[0]])
    assert begin(session, IDENTITIES[0][1], scope=IDENTITIES[0][0])["verdict"] == "fresh"
    session.rollback()


def test_the_functions_read_a_gateways_answers_and_it_sweeps_theirs(store, session, key, upstream, start):
    do_once(session, key, "swept", ttl="1 millisecond")
    gateway = start(config_for(upstream), store=store)
    answer = gateway.post("/orders", key)
    scope = json.loads(run([HAPAX, "keys", "list", "--store", store, "--json", "--key", key]))["scope"]
    assert lookup(session, key, scope) == ("done", answer.body.decode(), answer.status)
    wait_until(lambda: count(session, "orders", key) == 0, "the gateway sweeps")
