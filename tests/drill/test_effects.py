"""How effects are counted when they come late, never, or from somebody else."""

import json
import subprocess

import pytest
from harness import HAPAX
from test_drill import BROKEN, HOLDS, INCONCLUSIVE, RUN_S, drill, findings, ids  # noqa: F401

LATE = ["--late", "100"]  # ms that a worker takes for each effect, after its answer
SLOW = ["--settle", "20ms", "--rounds", "3", "--times", "3"]


@pytest.mark.parametrize("case", ["once.read.same.here.right-away", "repeats.race", "once.reply-lost.same.here.after"])
def test_effects_that_come_late_are_counted(site, drill, case):  # noqa: F811
    report = drill(site("naive", *LATE), "--profile", "queue", "--only", case, *SLOW)
    assert ids(report, BROKEN) == {case}, findings(report)


def test_a_right_endpoint_whose_effects_come_late_holds(site, drill):  # noqa: F811
    report = drill(site("right", *LATE), "--only", "repeats.race,once.read.*.right-away", *SLOW)
    assert findings(report) == []


def test_effects_that_never_end_in_time_are_no_proof(site, drill):  # noqa: F811
    """Six effects take 0.6 s, of which 0.35 s are waited for; what comes later falls into no other case."""
    report = drill(site("right", *LATE), "--only", "repeats.race,repeats.100-in-series", "--settle", "20ms", "--rounds", "6",
                   "--times", "2", "--settle-max", "350ms")
    assert ids(report, BROKEN) == set(), findings(report)
    assert ids(report, INCONCLUSIVE) <= {"repeats.race"}
    assert report["by id"]["repeats.100-in-series"]["verdict"] == HOLDS


def test_a_request_that_was_cut_may_have_no_effect(site, drill):  # noqa: F811
    report = drill(site("cut-runs"), "--only", "once.request-lost.same.here.*")
    assert ids(report, BROKEN) == {"once.request-lost.same.here.after"}
    assert "was cut took effect" in report["by id"]["once.request-lost.same.here.after"]["what"]


def test_a_counter_that_somebody_else_moves_proves_nothing(site, tmp_path):
    """Here it moves at each reading."""
    one, ticks = site("naive"), tmp_path / "ticks"
    done = subprocess.run([HAPAX, "drill", "POST", f"{one.url}/orders", "--effect-cmd", f"echo >> {ticks}; wc -l < {ticks}",
                           "--settle", "5ms", "--json", "--only", "once.read.same.here.*"],
                          capture_output=True, text=True, timeout=RUN_S)
    report = json.loads(done.stdout)
    assert ids(report, BROKEN) == set() and report["requests"] == 0 and done.returncode == 1
    assert "somebody else" in report["stopped"]
