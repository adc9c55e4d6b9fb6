"""Events: what proves something, and what is found."""

from test_drill import BROKEN, INCONCLUSIVE, drill, findings, ids  # noqa: F401

EVENTS = {"events.orders", "events.twice"}


def test_an_event_that_is_refused_at_first_is_sent_again(site, drill):  # noqa: F811
    report = drill(site("right-ordered"), "--only", "events.*")
    assert findings(report) == []


def test_events_that_nobody_takes_prove_nothing(site, drill):  # noqa: F811
    report = drill(site("no-events"), "--only", "events.*")
    assert ids(report, INCONCLUSIVE) == EVENTS and "400" in report["by id"]["events.orders"]["what"]


def test_a_state_that_is_not_there_proves_nothing(site, drill):  # noqa: F811
    one = site("right")
    report = drill(one, "--only", "events.*", final="/state#/typo")
    assert ids(report, INCONCLUSIVE) == EVENTS and "nothing at the pointer" in report["by id"]["events.orders"]["what"]


def test_a_state_that_events_do_not_change_proves_nothing(site, drill):  # noqa: F811
    report = drill(site("right"), "--only", "events.*", final="/working#/working")
    assert ids(report, INCONCLUSIVE) == EVENTS and "before and after" in report["by id"]["events.orders"]["what"]


def test_a_duplicate_that_comes_late_is_found(site, drill):  # noqa: F811
    report = drill(site("last-key-only"), "--only", "events.*")
    assert ids(report, BROKEN) == EVENTS, findings(report)
    assert "again all but the last" in report["by id"]["events.twice"]["what"]
