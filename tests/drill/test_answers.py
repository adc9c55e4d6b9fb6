"""What an answer does and does not prove: of one who limits his load, is gone, says that nobody knows, or refuses."""

import os

import pytest
from test_drill import BROKEN, INCONCLUSIVE, drill, findings, ids  # noqa: F401


def test_one_that_limits_its_load_is_not_accused(site, drill):  # noqa: F811
    report = drill(site("right-limited"), "--only", "repeats.*,once.read.same.here.*,answers.*", "--times", "4")
    assert ids(report, BROKEN) == set(), findings(report)
    assert "limits its load" in report["by id"]["repeats.100-in-series"]["what"]


def test_a_key_whose_repeats_vanish_is_broken(site, drill):  # noqa: F811
    report = drill(site("vanishes"), "--only", "repeats.*,once.read.same.here.right-away", "--times", "4")
    broken = {"repeats.100-in-series", "repeats.100-at-once", "repeats.race", "once.read.same.here.right-away"}
    assert ids(report, BROKEN) == broken, findings(report)


def test_where_only_effects_count_a_refusal_is_an_answer(site, drill):  # noqa: F811
    options = ["--only", "repeats.*,once.*.here.*,failures.*", "--times", "4"]
    report = drill(site("refuses"), "--profile", "queue", *options)
    assert findings(report) == []


def test_where_statuses_count_a_refusal_for_good_is_broken(site, drill):  # noqa: F811
    report = drill(site("refuses"), "--only", "once.read.same.here.right-away", "--recover", "1s")
    assert "stuck" in report["by id"]["once.read.same.here.right-away"]["what"]


@pytest.mark.parametrize("kind", ["failure-kept", "failure-kept-507"])
def test_only_500_and_501_may_stay_for_good(site, drill, kind):  # noqa: F811
    report = drill(site(kind), "--only", "failures.error", "--recover", "1s")
    assert ids(report, BROKEN) == {"failures.error"}, findings(report)


def test_one_that_is_gone_is_not_stuck(site, drill, tmp_path):  # noqa: F811
    one = site("right", "--log", tmp_path / "effects.log")
    one.restart_command = f"kill {one.process.pid}; while curl -so {os.devnull} {one.count_url}; do sleep 0.01; done"
    report = drill(one, "--only", "failures.restart-*,keys.*", "--recover", "1s", counter=["--effect-log", tmp_path / "effects.log"])
    assert ids(report, BROKEN) == set(), findings(report)
    assert report["by id"]["failures.restart-during"]["verdict"] == INCONCLUSIVE
    assert "gone" in report["stopped"]
