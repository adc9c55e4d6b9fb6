"""Gateways of the last version before a change of the tables beside those of today, on one database. The older one is built from
its commit, into build/old-COMMIT, once."""

import pathlib
import subprocess
import threading

import pytest
from harness import ROOT, Answer, at_once, config_for, wait_until

OLD = "aaa0644ab8f96d282e9efd92fa3c32f8868e24b0"  # the last commit whose tables are of version OLD_VERSION
OLD_VERSION = 2
BUILD_S = 900


def run(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=BUILD_S, **more)


@pytest.fixture(scope="module")
def old_binary():
    there = subprocess.run(["git", "-C", ROOT, "cat-file", "-e", OLD + "^{commit}"], capture_output=True, check=False)
    folder = ROOT / "build" / ("old-" + OLD[:12])
    binary = folder / "build" / "hapax"
    if binary.exists():
        return binary
    if there.returncode != 0:
        pytest.skip(f"this checkout has no history: commit {OLD[:12]} is not in it")
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    archive = folder / "source.tar"
    run("git", "-C", ROOT, "archive", "-o", archive, OLD)
    run("tar", "-xf", archive, "-C", source)
    run("cmake", "-S", source, "-B", binary.parent, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug")
    run("nice", "ninja", "-C", binary.parent, "hapax")
    return pathlib.Path(binary)


def test_gateways_of_two_versions_share_a_database(server, database, upstream, start, old_binary):
    name = database.rsplit("/", 1)[1]
    never = threading.Event()
    upstream.answer = lambda r: Answer(body=b'{"n":%d}' % r.number,
                                       wait=never if r.get("Idempotency-Key").startswith("left") else None)

    def version(which="schema"):
        return int(server.sql(f"SELECT value FROM hapax.meta WHERE name = '{which}'", name)[0][0])

    old = start(config_for(upstream), "old", store=database, binary=old_binary)
    assert version() == OLD_VERSION
    before = old.post("/orders", "before")
    new = start(config_for(upstream), "new", store=database)
    assert version() > OLD_VERSION >= version("least")

    again = new.post("/orders", "before")
    assert (before.status, again.marker, again.body) == (201, "replayed", before.body)
    answers = at_once(32, lambda i: (old, new)[i % 2].post("/orders", f"key{i // 4}"))
    for key in range(8):
        assert len({a.body for a in answers[key * 4:key * 4 + 4]}) == 1
    assert {a.status for a in answers} == {201}
    assert len(upstream.effects("/orders")) == 9
    by_new = new.post("/orders", "by new")
    assert old.post("/orders", "by new").body == by_new.body

    old.stop()
    old.start()
    assert version() > OLD_VERSION
    assert old.post("/orders", "by new").marker == "replayed"

    for i in range(4):
        threading.Thread(target=abandoned, args=(new, f"left{i}"), daemon=True).start()
    wait_until(lambda: len(upstream.effects("/orders")) == 14, "the new one's claims are with the upstream")
    new.kill()
    for i in range(4):
        wait_until(lambda i=i: old.post("/orders", f"left{i}").problem == "outcome-unknown",
                   "the old one finds out that the new one is gone")
    assert len(upstream.effects("/orders")) == 14
    never.set()


def abandoned(gateway, key):
    try:
        gateway.post("/orders", key)
    except Exception:  # the gateway is killed
        pass
