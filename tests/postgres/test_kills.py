"""A short run of `crash.py --postgres`: two gateways under load, and they, their sessions and the server are killed,
ended and frozen in random order. HAPAX_KILL_ROUNDS says how many times; `make crash STORE=postgres` runs more."""

import os
import subprocess

import pytest

from harness import ROOT, is_sanitized
from postgres_server import PostgresServer

ROUNDS = os.environ.get("HAPAX_KILL_ROUNDS") or ("6" if is_sanitized() else "9")


def test_nothing_is_doubled_or_lost_when_gateways_sessions_and_servers_die():
    if PostgresServer.missing() is not None:
        pytest.skip(PostgresServer.missing())
    run = subprocess.run([ROOT / "tests" / "crash" / "crash.py", "--postgres", "--rounds", ROUNDS],
                         capture_output=True, text=True)
    print(run.stdout)  # the seed, and what the run has met
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]
