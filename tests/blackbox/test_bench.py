"""`hapax bench` measures what it says and leaves nothing behind; bench/run works from end to end. No figure is
judged here, only that there are figures."""

import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys

import pytest
from harness import HAPAX, PATIENCE_S, ROOT, is_sanitized, wait_until

SEED = HAPAX.parent / "tests" / "tools" / "hapax_seed"


def bench(*args, code=0, cwd=None):
    done = subprocess.run([HAPAX, "bench", *args], capture_output=True, text=True, cwd=cwd, timeout=2 * PATIENCE_S)
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def figures(*args, **more):
    return json.loads(bench("--seconds", "1", "--json", *args, **more).stdout)


def test_pairs_are_measured_on_a_store_that_is_gone_afterwards(tmp_path):
    found = figures("--threads", "4", cwd=tmp_path)
    assert found["pairs_per_s"] > 0 and found["replays_per_s"] == 0
    assert found["us"]["claim"]["count"] == found["us"]["complete"]["count"] == found["us"]["pair"]["count"] > 0
    for times in (found["us"][name] for name in ("claim", "complete", "pair")):
        assert 0 < times["p50"] <= times["p99"] <= times["max"]
    assert found["us"]["pair"]["max"] >= max(found["us"]["claim"]["p50"], found["us"]["complete"]["p50"])
    assert 1 <= found["batch_operations"] <= 4
    assert found["fdatasync_us"] > 0 and "synchronous=FULL" in found["setting"]["durability"]
    assert found["machine"]["cores"] >= 1
    assert list(tmp_path.iterdir()) == []


def test_repeats_are_their_share_and_apart(tmp_path):
    found = figures("--threads", "2", "--repeats", "75", "--store", "memory:", cwd=tmp_path)
    replays, pairs = found["us"]["replay"]["count"], found["us"]["pair"]["count"]
    assert replays > 0 and abs(replays - 3 * pairs) <= 2 * 4
    assert found["fdatasync_us"] is None and found["setting"]["durability"].startswith("none")
    assert found["written_bytes_per_pair"] >= 0
    text = bench("--seconds", "1", "--repeats", "75", "--store", "memory:").stdout
    for word in ("pairs/s", "replays/s", "batch", "durability", "machine", "claim", "complete", "pair", "replay"):
        assert f"\n{word} " in "\n" + text, word


def test_keys_before_are_there_while_it_measures(tmp_path):
    store = tmp_path / "kept.db"
    subprocess.run([SEED, f"sqlite:{store}", "done:1"], check=True, timeout=PATIENCE_S)
    found = figures("--threads", "2", "--keys-before", "700", "--store", f"sqlite:{store}", "--existing")
    stats = json.loads(subprocess.run(
        [HAPAX, "stats", "--json", "--store", f"sqlite:{store}"], capture_output=True, check=True).stdout)
    assert stats["running"] == 0 and stats["records"] == 1 + 700 + found["us"]["pair"]["count"]


def test_an_existing_store_is_left_alone_unless_asked_for(tmp_path):
    store = tmp_path / "mine.db"
    subprocess.run([SEED, f"sqlite:{store}", "done:3"], check=True, timeout=PATIENCE_S)
    before = store.read_bytes()
    done = bench("--store", f"sqlite:{store}", code=4)
    assert "exists already" in done.stderr and "--existing" in done.stderr
    assert store.read_bytes() == before
    assert figures("--threads", "2", "--store", f"sqlite:{store}", "--existing")["pairs_per_s"] > 0
    lines = subprocess.run([HAPAX, "keys", "list", "--json", "--store", f"sqlite:{store}", "--scope", "hapax bench",
                            "--limit", "1"], capture_output=True, check=True, text=True).stdout.splitlines()
    assert len(lines) == 1, "what it added is told apart by its scope"


def test_a_named_store_that_was_not_there_is_gone_afterwards(tmp_path):
    assert figures("--threads", "2", "--store", f"sqlite:{tmp_path}/new.db")["pairs_per_s"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args, code, hint", [
    (["--existing"], 2, "goes with --store"),
    (["--dir", "/tmp", "--store", "memory:"], 2, "--dir is for the temporary store"),
    (["--threads", "0"], 2, "from 1 to 1024"),
    (["--threads", "1025"], 2, "from 1 to 1024"),
    (["--seconds", "0"], 2, "from 1 to 86400"),
    (["--repeats", "101"], 2, "to 100"),
    (["--body", "16777217"], 2, "16777216"),
    (["--keys-before", "1000000000"], 2, "at most"),
    (["--keys-before", "20000", "--body", "1000000", "--store", "memory:"], 2, "fit into 4 GiB"),
    (["--store", "nonsense:"], None, "nonsense"),
    (["--dir", "not/there"], 1, "not/there"),
    (["--store", "sqlite:not/there/x.db"], None, "not/there"),
    (["--seconds", "1", "--store", "fault:fail=5:memory:"], None, "fault"),
])
def test_what_can_not_be_done_is_said(args, code, hint, tmp_path):
    done = subprocess.run([HAPAX, "bench", *args], capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S)
    assert done.returncode == (code if code is not None else done.returncode) != 0, done.stderr
    assert hint in done.stderr and done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_it_still_prints(number, tmp_path):
    child = subprocess.Popen([HAPAX, "bench", "--seconds", "3600", "--threads", "2", "--json"], cwd=tmp_path,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(p.stat().st_size > 600_000 for p in tmp_path.glob("*/bench.db-wal")), "it measures")
    child.send_signal(number)
    out, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0 and "stopped after" in err
    found = json.loads(out)
    assert found["interrupted"] and found["us"]["pair"]["count"] > 0 and found["elapsed_s"] < 3600
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_it_fills_says_that_nothing_was_measured(tmp_path):
    ours, theirs = pty.openpty()
    child = subprocess.Popen([HAPAX, "bench", "--keys-before", "50000000"], cwd=tmp_path, stdout=subprocess.PIPE,
                             stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    while b"filling: record " not in shown:
        shown += os.read(ours, 4096)
    assert b" of 50000000" in shown or b" of 50000000" in os.read(ours, 4096)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=PATIENCE_S)
    shown = os.read(ours, 65536)
    os.close(ours)
    assert child.returncode == 1 and out == "" and b"nothing was measured" in shown
    assert list(tmp_path.iterdir()) == []


# --- bench/run ---------------------------------------------------------------------------------------


def run_bench(folder, *args):
    done = subprocess.run([sys.executable, ROOT / "bench" / "run", "--json", *args], capture_output=True, text=True,
                          env={**os.environ, "BENCH_DIR": str(folder), "HAPAX_BUILD": str(HAPAX.parent)},
                          timeout=4 * PATIENCE_S)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(folder.iterdir()) == []
    return json.loads(done.stdout)


def needs(*programs):
    missing = [p for p in programs if shutil.which(p) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: dev/deps bench")


def test_every_subject_answers_new_keys_and_replays(tmp_path):
    needs("wrk", "nginx")
    if is_sanitized():
        pytest.skip("a benchmark of a sanitized build says nothing, and the release build runs this test")
    found = run_bench(tmp_path, "--only", "side", "--seconds", "1", "--rounds", "1", "--connections", "8",
                      "--loads", "fresh,replays")
    rows = found["parts"]["side"]
    subjects = {row["subject"] for row in rows}
    assert {"nginx return 200", "nginx proxy_pass", "hapax"} <= subjects
    assert len(subjects) + len(found["skipped"]) == 6, "a subject is measured, or left out with a reason"
    assert len(rows) == 2 * len(subjects)
    for row in rows:
        assert row["rps"] > 0 and row["cpu_us"] >= 0 and row["peak_mib"] > 0, row
        if row["subject"] in ("nginx return 200", "nginx proxy_pass", "hapax"):  # the others give up on a slow disk
            assert row["refused"] == 0, row
    fresh = {row["subject"]: row for row in rows if row["load"] == "fresh"}
    assert fresh["nginx proxy_pass"]["to_proxy"] == 1
    assert found["targets"] and all({"target", "bound", "seen", "met"} == set(t) for t in found["targets"])


def test_the_other_parts_measure_what_they_name(tmp_path):
    needs("wrk", "nginx", "redis-server")
    if is_sanitized():
        pytest.skip("a benchmark of a sanitized build says nothing, and the release build runs this test")
    found = run_bench(tmp_path, "--only", "latency,pairs,keys", "--seconds", "1", "--rounds", "1", "--connections", "8",
                      "--keys", "10000")
    assert found["skipped"] == [], found["skipped"]
    parts = found["parts"]
    assert parts["latency"]["hapax_p50_ms"] > 0 and parts["latency"]["two_syncs_ms"] > 0
    assert parts["pairs"]["ratio"] > 0
    assert [f["count"] for f in parts["keys"]["filled"]] == [50, 10000]
    assert all(row["rps"] > 0 for row in parts["keys"]["rows"])


def test_instructions_are_counted_for_the_loop_and_the_lane_apart(tmp_path):
    needs("valgrind", "vgdb", "nginx")
    if is_sanitized():
        pytest.skip("valgrind can't run a sanitized build")
    done = subprocess.run([sys.executable, ROOT / "bench" / "instructions", "--json", "--requests", "32", "--width", "8",
                           "--rounds", "1"], capture_output=True, text=True, timeout=4 * PATIENCE_S,
                          env={**os.environ, "BENCH_DIR": str(tmp_path), "HAPAX_BUILD": str(HAPAX.parent)})
    assert done.returncode == 0, done.stderr[-3000:]
    fresh, replay = json.loads(done.stdout)
    assert fresh["loop"] > 1000 and fresh["lane"] > 1000 and replay["loop"] > 1000
    assert replay["lane"] < fresh["lane"] and fresh["batch"] >= 1
