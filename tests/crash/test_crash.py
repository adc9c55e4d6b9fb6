"""The tools of `make crash` themselves: the check finds each kind of fault, the preloaded library misses no write,
and a disk that lies about syncs is found out."""

import contextlib
import itertools
import pathlib
import random
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "blackbox"))

import crash  # noqa: E402
import powercut  # noqa: E402
from check import Arrival, Ask, Story  # noqa: E402
from harness import Answer, Ended, Gateway, Upstream, config_for, is_sanitized, wait_until  # noqa: E402


# --- The check. ---


def ask(start, end, verdict, variant="0", phase="run"):
    status, marker, problem, digest = verdict
    return Ask(start, end, 1, "k", variant, phase, status, marker, problem, digest)


def executed(digest="d1", marker="executed", status=201):
    return (status, marker, "-", digest)


HELD = (409, "held", "outcome-unknown", "p")
REUSED = (422, "rejected", "key-reused", "p")
RUNNING = (409, "in-progress", "in-progress", "p")
NOTHING = (0, "closed", "-", "0")


def arrival(at, plan="answer", answered=None, digest="d1", variant="0", number=1):
    status = {"answer": 201, "error": 500, "busy": 503}.get(plan, 0)
    return Arrival(at, number, "k", variant, "1", plan, answered or at + 1, status, digest)


GOOD = {
    "told once, replayed, refused to another payload": (
        [ask(0, 5, executed()), ask(6, 7, executed(marker="replayed")), ask(8, 9, REUSED, "1"),
         ask(20, 21, executed(marker="replayed"), phase="end")], [arrival(2)], []),
    "refused, then done": (
        [ask(0, 5, (503, "released", "-", "x")), ask(6, 9, executed()), ask(20, 21, executed(marker="replayed"), phase="end")],
        [arrival(2, "busy", digest="x"), arrival(7, number=2)], []),
    "killed in the call": ([ask(0, 5, NOTHING), ask(20, 21, HELD, phase="end")], [arrival(2)], [(4, "killed")]),
    "in progress where the commit is in doubt, replayed elsewhere": (
        [ask(0, 5, executed(marker="attached")), ask(6, 7, RUNNING), ask(0, 8, (502, "unknown", "outcome-unknown", "p")),
         ask(20, 21, executed(marker="replayed"), phase="end")], [arrival(2)], [(4, "sessions terminated")], True),
    "broken off": ([ask(0, 5, (502, "unknown", "outcome-unknown", "p")), ask(20, 21, HELD, phase="end")],
                   [arrival(2, "close")], []),
}

END = ask(20, 21, executed(marker="replayed"), phase="end")

BAD = {
    "after the effect": ([ask(0, 5, NOTHING), ask(6, 9, executed("d2")), ask(20, 21, executed("d2", "replayed"), phase="end")],
                         [arrival(2), arrival(7, digest="d2", number=2)], [(4, "killed")]),
    "was in flight": ([ask(0, 5, NOTHING), END], [arrival(2, "busy", 9), arrival(3, number=2)], []),
    "nobody has asked": ([ask(0, 5, executed()), END], [arrival(2), arrival(3, variant="1", number=2)], []),
    "no answer: closed": ([ask(0, 5, executed()), END, ask(22, 23, NOTHING, phase="end")], [arrival(2)], []),
    "no answer: late": ([ask(0, 30 * 10**9, (0, "late", "-", "0")),
                         ask(31 * 10**9, 32 * 10**9, executed(marker="replayed"), phase="end")], [arrival(2)], []),
    "wrong status or marker": ([ask(0, 5, (200, "held", "outcome-unknown", "p")), ask(20, 21, HELD, phase="end")],
                               [arrival(2, "close")], []),
    "no call broke off": ([ask(0, 5, HELD), ask(20, 21, HELD, phase="end")], [arrival(2)], []),
    "wrong marker": ([ask(0, 5, executed(marker="unprotected")), END], [arrival(2)], []),
    "has not given": ([ask(0, 5, executed("d9")), ask(20, 21, executed("d9", "replayed"), phase="end")], [arrival(2)], []),
    "anything else": ([ask(0, 5, executed()), ask(6, 7, executed(marker="replayed")), ask(0, 1, REUSED), END], [arrival(2)], []),
    "no reason for": ([ask(0, 5, (500, "rejected", "internal", "p")), END], [arrival(2)], []),
    "contradicts": ([ask(0, 5, executed()), ask(20, 21, HELD, phase="end")], [arrival(2)], [(4, "killed")]),
    "executed a second time": ([ask(0, 5, executed()), ask(6, 7, executed()), END], [arrival(2)], []),
    "one had been given": ([ask(0, 5, executed()), ask(6, 7, RUNNING), END], [arrival(2)], []),
    "though one had been given": ([ask(0, 5, executed()), ask(6, 7, RUNNING), END], [arrival(2)], [(8, "the server killed")], True),
    "was another payload's": ([ask(0, 5, executed()), ask(6, 7, RUNNING, "1"), END], [arrival(2)], []),
    "final answer to another payload": ([ask(0, 5, executed()), ask(6, 7, executed(marker="replayed"), "1"), END],
                                        [arrival(2)], []),
    "no final answer at the end": ([ask(0, 5, executed())], [arrival(2)], []),
}


@pytest.mark.parametrize("name", GOOD)
def test_the_check_accepts(name):
    assert Story(*GOOD[name]).faults() == []


@pytest.mark.parametrize("text", BAD)
def test_the_check_finds(text):
    story = Story(*BAD[text])
    assert any(text in fault.text for fault in story.faults()), story.faults()
    assert len(story.history("k")) >= len(BAD[text][0])


def test_try_later_is_no_answer_at_the_end():
    story = Story([ask(0, 5, executed()), END, ask(22, 23, (503, "rejected", "store-unavailable", "p"), phase="end")],
                  [arrival(2)], [])
    assert [fault.text for fault in story.faults()] == ["an answer that there is no reason for"]


# --- The power cut. ---

needs_preload = pytest.mark.skipif(is_sanitized(), reason="a sanitizer's runtime must be the first library")


@pytest.fixture
def upstream():
    server = Upstream()
    yield server
    server.close()


class Machine:
    """A gateway whose power can be cut."""

    def __init__(self, folder, upstream, **fields):
        self.folder = folder.resolve()
        self.journal = self.folder / "powercut.journal"
        self.config = config_for(upstream, **fields)

    def prepare(self, **trouble):
        self.gateway = Gateway(self.folder, self.config, environment=crash.power_environment(self.folder, **trouble))
        return self.gateway

    def start(self, lie=None):
        return self.prepare(lie=lie).start()

    def cut(self, mode):
        self.gateway.kill()
        return powercut.cut(self.gateway.store_path, self.journal, random.Random(1), mode)


def contents(folder):
    return {name: (folder / name).read_bytes() for name in ("hapax.db", "hapax.db-wal")}


@needs_preload
def test_every_write_to_the_store_is_seen(upstream, tmp_path):
    """With every sync a lie, taking back all writes gives the very bytes that stood there before, though
    commits, checkpoints and the log's new start have gone over them."""
    machine = Machine(tmp_path, upstream, keep_body="16MiB")
    machine.start().post("/orders", "before")
    machine.cut("all kept")
    before = contents(machine.folder)
    gateway = machine.start(lie="all")
    upstream.answer = Answer(201, body=b"x" * 6_000_000)

    def writes(file):
        return [e for e in powercut.read_journal(machine.journal) if e.kind == powercut.WRITE and e.file == file]

    try:
        for number in range(30):  # 180 MB: the log starts over at 128 MiB
            assert gateway.post("/orders", f"k{number}").status == 201
        wait_until(lambda: writes(1), "a checkpoint")
        at = [e.at for e in writes(2)]
        assert at.index(max(at)) < len(at) - 1, "the log has started over"
        assert contents(machine.folder)["hapax.db"] != before["hapax.db"]
    finally:
        said = machine.cut("all lost")
    assert "writes of hapax.db" in said and contents(machine.folder) == before


@needs_preload
@pytest.mark.parametrize("lie", [None, "log"])
def test_what_a_lying_disk_loses_is_found(upstream, tmp_path, lie):
    """A claim and its answer, acknowledged: on an honest disk the power can take neither."""
    upstream.answer = lambda r: Answer(201, body=b"effect %d" % r.number)
    machine = Machine(tmp_path, upstream)
    machine.start()
    machine.cut("all lost")
    told = [machine.start(lie).post("/orders", "k")]
    machine.cut("all lost")
    told.append(machine.start().post("/orders", "k"))
    machine.gateway.stop()

    assert len(upstream.effects()) == (1 if lie is None else 2)
    asks = [ask(10 * i, 10 * i + 5, (a.status, a.marker, a.problem or "-", a.body.decode()), phase="end")
            for i, a in enumerate(told)]
    arrivals = [arrival(10 * i + 1, digest=f"effect {r.number}", number=r.number)
                for i, r in enumerate(upstream.effects())]
    faults = {fault.text for fault in Story(asks, arrivals, [(7, "power cut")]).faults()}
    if lie is None:
        assert told[1].marker == "replayed" and faults == set()
    else:
        assert {"arrival 2 after the effect of arrival 1", "a final answer that contradicts an earlier one"} <= faults


KEYS = ["a", "b", "c"]
SHARDS = 4  # for the processes of the tests


def starts(gateway):
    """False: it was killed before it listened."""
    gateway.spawn()
    wait_until(lambda: gateway.listens() or gateway.process.poll() is not None, "it listens or dies")
    return gateway.listens()


def ask_until_it_dies(gateway):
    """What was told, by key; what broke off is left out."""
    told = {}
    with contextlib.suppress(Ended, OSError):
        for key in KEYS:
            told[key] = gateway.post("/orders", key)
    return told


def cut_before_step(step, mode, machine, upstream):
    """False: there is no such step."""
    upstream.requests.clear()
    gateway = machine.prepare(kill=step)
    told = ask_until_it_dies(gateway) if starts(gateway) else {}
    reached = len(told) < len(KEYS)
    if reached:
        assert gateway.process.wait(60) == -signal.SIGKILL
    said = machine.cut(mode)
    again = ask_until_it_dies(machine.start())
    machine.gateway.stop()
    for key in KEYS:
        what = (step, said, key, told.get(key), again[key])
        effects = [r.number for r in upstream.effects() if r.get("Idempotency-Key") == key]
        if key in told:
            assert (again[key].status, again[key].body, again[key].marker) == (201, told[key].body, "replayed"), what
        assert len(effects) <= 1 and (again[key].status, again[key].problem) in {(201, None), (409, "outcome-unknown")}, what
        if again[key].status == 201:
            assert again[key].body == b"effect %d" % effects[0], what
    return reached


@needs_preload
@pytest.mark.parametrize("mode", ["all lost", "some kept"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_power_may_go_before_any_step_of_making_and_using_a_store(upstream, tmp_path, mode, shard):
    upstream.answer = lambda r: Answer(201, body=b"effect %d" % r.number)
    for step in itertools.count(1 + shard, SHARDS):
        folder = tmp_path / str(step)
        folder.mkdir()
        if not cut_before_step(step, mode, Machine(folder, upstream), upstream):
            break
    assert step > 20


@needs_preload
def test_rounds_on_a_lying_disk_fail_and_show_the_keys_history(tmp_path, capsys):
    segment = crash.Segment(tmp_path.resolve(), 7, 8, power=True, lie="log")
    story = segment.run()
    faults = story.faults()
    assert any("after the effect" in fault.text for fault in faults)
    assert any("contradicts" in fault.text for fault in faults)
    crash.report(segment, story, faults)
    printed = capsys.readouterr().out
    assert "seed 7" in printed and "upstream: arrival" in printed and "power cut, " in printed


def test_a_torn_write_keeps_some_sectors_and_loses_others(tmp_path):
    store = tmp_path / "hapax.db"
    old, new = b"o" * 5000, b"n" * 6000
    store.write_bytes(old)
    entry = powercut.Entry(0, powercut.WRITE, 1, 100, 6000, 5000, old[100:])
    journal = tmp_path / "journal"
    journal.write_bytes(powercut.ENTRY.pack(powercut.MAGIC, powercut.WRITE, 1, 100, 6000, 5000, 4900) + entry.old)
    with open(store, "r+b") as f:
        f.seek(100)
        f.write(new)
    kinds = set()
    for seed in range(200):
        copy = tmp_path / f"copy{seed}"
        copy.write_bytes(store.read_bytes())
        copied_journal = tmp_path / f"journal{seed}"
        copied_journal.write_bytes(journal.read_bytes())
        powercut.cut(copy, copied_journal, random.Random(seed), "some kept")
        after = copy.read_bytes()
        assert after[:100] == old[:100] and copied_journal.read_bytes() == b""
        sectors = [after[at:at + 512] for at in range(512, 4608, 512)]
        assert all(sector in (b"o" * 512, b"n" * 512) for sector in sectors)
        kinds.add("torn" if len(set(sectors)) == 2 else "whole" if after[100:] == new else "none" if after == old else "?")
    assert {"torn", "whole", "none"} <= kinds
