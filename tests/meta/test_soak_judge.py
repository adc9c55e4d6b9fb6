"""The soak's judge can fail: invented samples of things that grow, and of things that only look like it."""

import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))
from judge import Allowance, judge, table

MIB = 1024 * 1024
ALLOWED = Allowance(absolute=4 * MIB, relative=0.05)


def series(value, seconds=600):
    return [(t, value(t)) for t in range(seconds)]


def complaint(value, allowance=ALLOWED):
    return judge("memory", series(value), allowance).complaint


def test_a_leak_is_found():
    assert "grows" in complaint(lambda t: 30 * MIB + t * 20 * 1024)  # 20 KiB a second
    assert "grows" in complaint(lambda t: 30 * MIB + t * 20 * 1024 + 3 * MIB * math.sin(t / 7))  # under noise
    assert "grows" in complaint(lambda t: 30 * MIB + (t // 100) * 2 * MIB)  # in steps
    assert "grows" in complaint(lambda t: 10 + t // 60, Allowance(absolute=1))  # descriptors, one a minute


def test_what_fills_and_then_stays_is_flat():
    assert complaint(lambda t: 30 * MIB) is None
    assert complaint(lambda t: MIB * min(40, 10 + t)) is None  # a pool that fills during warm-up
    assert complaint(lambda t: 30 * MIB + 3 * MIB * math.sin(t / 7)) is None
    assert complaint(lambda t: 90 * MIB if t == 500 else 30 * MIB) is None  # one peak
    assert complaint(lambda t: 60 * MIB - t * 20 * 1024) is None


def test_a_ceiling_holds_for_every_sample():
    assert "ceiling" in complaint(lambda t: 90 * MIB if t == 500 else 30 * MIB, Allowance(MIB, ceiling=64 * MIB))
    assert "ceiling" in complaint(lambda t: 90 * MIB if t == 3 else 30 * MIB, Allowance(MIB, ceiling=64 * MIB))


def test_what_was_hardly_seen_is_not_called_flat():
    assert "samples" in judge("memory", [], ALLOWED).complaint
    assert "samples" in judge("memory", [(t, 1) for t in range(8)], ALLOWED).complaint


def test_the_table_says_what_grows():
    text = table([judge("memory", series(lambda t: t * MIB), ALLOWED), judge("threads", series(lambda t: 5), Allowance())])
    assert [line.split()[-1] for line in text.splitlines()[1:]] == ["GROWS", "flat"]
