"""`hapax bench` on PostgreSQL, and bench/run --store postgres from end to end. No figure is judged here, only that there
are figures."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest
from harness import HAPAX, PATIENCE_S, ROOT, is_sanitized
from postgres_server import PostgresServer


def bench(*args):
    return subprocess.run([HAPAX, "bench", "--seconds", "1", "--threads", "4", "--json", *args], check=False,
                          capture_output=True, text=True, timeout=PATIENCE_S)


def test_a_database_is_left_alone_unless_asked_for(server):
    name = server.database()
    refused = bench("--store", server.uri(name))
    assert refused.returncode == 4 and "--existing" in refused.stderr and refused.stdout == ""
    assert server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'hapax'", name) == [["0"]]


def test_pairs_are_measured_and_what_is_added_expires_after_an_hour(server):
    name = server.database()
    done = bench("--existing", "--store", server.uri(name).replace("postgres@", "postgres:secret-word@"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    pairs = found["us"]["pair"]["count"]
    assert pairs > 0 and found["batch_operations"] >= 1 and found["setting"]["lanes"] >= 1
    assert "PostgreSQL" in found["setting"]["durability"]
    assert found["fdatasync_us"] is None and found["written_bytes_per_pair"] is None, "only the server knows"
    assert "secret-word" not in done.stdout + done.stderr
    assert server.sql("SELECT state, count(*), max(ttl_ms) FROM hapax.record GROUP BY state", name) == [
        ["2", str(pairs), "3600000"]]


@pytest.fixture
def folder():
    """One that the server's user may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="hapax-bench-") as name:
        path = pathlib.Path(name)
        path.chmod(0o755)
        yield path


def test_the_parts_on_postgres_measure_what_they_name(folder):
    missing = [p for p in ("wrk", "nginx") if shutil.which(p) is None]
    if missing or PostgresServer.missing():
        pytest.skip(f"{', '.join(missing) or 'PostgreSQL'} not installed: dev/deps bench")
    if is_sanitized():
        pytest.skip("a benchmark of a sanitized build says nothing, and the release build runs this test")
    done = subprocess.run([sys.executable, ROOT / "bench" / "run", "--store", "postgres", "--only", "all", "--seconds", "2",
                           "--rounds", "1", "--connections", "8", "--loads", "fresh", "--keys", "2000", "--json"],
                          check=False, capture_output=True, text=True, timeout=5 * PATIENCE_S,
                          env={**os.environ, "BENCH_DIR": str(folder), "HAPAX_BUILD": str(HAPAX.parent)})
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(folder.iterdir()) == []
    found = json.loads(done.stdout)
    assert found["skipped"] == []
    parts = found["parts"]
    for row in parts["pairs"]["rows"]:
        assert row["ratio"] > 0 and row["hapax"]["wal_bytes"] > 0 and row["by hand"]["commits"] >= 2
    for row in parts["trips"]:
        assert row["trips_a_pair"] > 0 and row["statements_a_pair"] > 0, row
    assert {row["store"] for row in parts["gateway"]} == {"SQLite", "PostgreSQL"}
    assert [f["count"] for f in parts["keys"]["filled"]] == [10, 2000]
    assert all(row["rps"] > 0 and row["bad"] == 0 for row in parts["gateway"] + parts["keys"]["rows"])
