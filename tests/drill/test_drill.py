"""`hapax drill` against servers of which it is known what is wrong with them: exactly that must be found.

The right ones and the gateway are drilled with every case. The wrong ones with every kind of case, but with a part of the
matrix (QUICK), since there are many of them."""

import fnmatch
import json
import os
import subprocess

import pytest
import reading
from harness import HAPAX, PATIENCE_S

QUICK = "check.*,answers.*,repeats.*,keys.*,failures.*,events.*,once.*.right-away,at-once.read.*.during"
RUN_S = 600
BROKEN, HOLDS, NOT_APPLICABLE, INCONCLUSIVE = "broken", "holds", "not applicable", "inconclusive"

# Kinds whose answers are empty have nothing to compare.
EMPTY = ["answers.headers", "answers.multiple", "answers.set-cookie"]
# Refused or not, keys that are bad have as many effects as they should, if only a key is demanded at all.
JUST_KEYS = ["check.*", "keys.256-bytes", "keys.8-kib", "keys.undefined", "keys.null", "keys.template", "keys.object",
             "failures.error", "events.*"]

# What is broken, by kind; in QUICK, everything else must hold. "-...": not these. The second list depends on who comes
# first.
EXPECTED = {
    "lost-cookie": (["answers.set-cookie"], []),
    "lost-location": (["answers.headers"], []),
    "lost-duplicate": (["answers.multiple"], []),
    "any-tenant": (["*.other-tenant.*"], []),
    # Of two payloads the second one is refused, also at another path: that is for the endpoint to say.
    "any-path": (["*.other-path.*", "-*.read.other.*", "-*.reply-lost.other.*"], ["at-once.read.other.other-path.*"]),
    "no-fingerprint": (["*.other.here.*"], []),
    "failure-kept": (["failures.error"], []),
    "last-event-wins": (["events.orders"], []),
    "lost-reply-repeats": (["*.reply-lost.*"], []),
    # There is one answer only to a request that was executed, had its reply lost, and is repeated once.
    "changing": (["answers.repeat", "repeats.*", "failures.restart-after", "once.*", "at-once.*",
                  "-once.reply-lost.other.here.*"], []),
    "keyless": (["keys.missing"], []),
    "any-key": (["keys.not-ascii"], []),
    "race": (["repeats.race", "repeats.100-at-once", "at-once.read.*.during"], ["once.reply-lost.*"]),
}


# What never recovers is waited for: shorter, but not while a crashed server starts again.
OPTIONS = {"failure-kept": ["--recover", "5s", "--skip", "failures.restart-*"]}


@pytest.fixture
def drill(tmp_path):
    """Run the drill: drill(site, options...) -> its report. Everything that a case may need is there."""
    events = tmp_path / "events"
    events.mkdir()
    for version, status in [(1, "made"), (2, "paid")]:
        (events / f"{version}.json").write_text(json.dumps({"version": version, "status": status}))

    def run(site, *options, code=None, environment=None, counter=None, final="/state#/status"):
        command = [
            HAPAX, "drill", "POST", f"{site.url}/orders", "-H", "Content-Type: application/json",
            "-H", "Authorization: Bearer a", "-d", '{"order": "{unique}", "item": "book", "count": 1}',
            *(counter or ["--effect-url", f"{site.count_url}#/total"]), "--tenant-header", "Authorization: Bearer b",
            "--other-url", f"{site.url}/other", "--fail", "Fail: once", "--restart-cmd", site.restart_command,
            "--events", events, "--final-url", f"{site.url}{final}",
            "--reset-cmd", f"curl -sS -X DELETE {site.url}/state", "--settle", "5ms", "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, env=environment)
        assert done.returncode in (0, 1) if code is None else done.returncode == code, (done.returncode, done.stderr)
        report = json.loads(done.stdout)
        report["code"] = done.returncode
        report["by id"] = {case["id"]: case for case in report["cases"]}
        return report

    return run


def quick(drill, site, *options):
    # Effects come before answers here: none is waited for.
    return drill(site, "--only", QUICK, "--times", "4", "--rounds", "4", "--settle-max", "100ms", *options)


def ids(report, verdict):
    return {case["id"] for case in report["cases"] if case["verdict"] == verdict}


def matching(report, patterns):
    found = set()
    for pattern in patterns:
        matched = {case["id"] for case in report["cases"] if fnmatch.fnmatchcase(case["id"], pattern.lstrip("-"))}
        found = found - matched if pattern.startswith("-") else found | matched
    return found


def findings(report):
    """For a message that can be read."""
    return [(case["id"], case["verdict"], case["what"]) for case in report["cases"]
            if case["verdict"] in (BROKEN, INCONCLUSIVE)]


# --- What is right -----------------------------------------------------------------------------------


def check_that_all_holds(report, not_applicable):
    assert findings(report) == []
    assert ids(report, NOT_APPLICABLE) == set(not_applicable)
    assert len(report["cases"]) == 271 and sum(case["axes"] is not None for case in report["cases"]) == 243
    assert report["code"] == 0 and report["stopped"] is None


def test_the_right_one_holds_in_all_cases(site, drill):
    check_that_all_holds(drill(site("right")), ["answers.empty"])


def test_the_gateway_in_front_of_the_naive_one_holds_in_all_cases(gateway, drill):
    check_that_all_holds(drill(gateway("naive")), ["answers.empty"])


def test_it_is_as_right_to_refuse_while_the_first_runs(site, drill):
    report = quick(drill, site("right-conflict"))
    assert findings(report) == [] and report["code"] == 0


def test_it_is_as_right_to_answer_with_nothing(site, drill):
    report = quick(drill, site("right-empty"))
    assert findings(report) == [] and report["code"] == 0
    assert report["by id"]["answers.empty"]["verdict"] == HOLDS
    assert {"answers.multiple", "answers.set-cookie"} <= ids(report, NOT_APPLICABLE) <= set(EMPTY)


# --- What is wrong in one way ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EXPECTED)
def test_exactly_what_is_wrong_is_found(site, drill, kind):
    report = quick(drill, site(kind), *OPTIONS.get(kind, []))
    must, may = (matching(report, patterns) for patterns in EXPECTED[kind])
    assert must
    broken = ids(report, BROKEN)
    assert must <= broken <= must | may, (sorted(must - broken), sorted(broken - must - may), findings(report))
    assert ids(report, INCONCLUSIVE) == set() and ids(report, NOT_APPLICABLE) == {"answers.empty"}
    assert report["code"] == 1
    for one in broken:
        assert report["by id"][one]["what"] and "curl" in report["by id"][one]["curl"]


def test_findings_say_what_happened(site, drill):
    """Effects are told by number, answers by what they were."""
    report = quick(drill, site("any-tenant"), "--skip", "repeats.*,keys.*,failures.*,events.*")
    case = report["by id"]["once.read.same.other-tenant.right-away"]
    assert "1 effect instead of 2" in case["what"] and "the first one's answer" in case["what"]
    assert case["effects"] == {"least": 2, "most": 2, "seen": 1} and case["statuses"] == [{"status": 201, "times": 4}]


def test_an_empty_answer_that_runs_again_is_found(site, drill):
    report = quick(drill, site("empty-runs-again"))
    broken = ids(report, BROKEN)
    assert {"answers.empty", "answers.repeat", "repeats.100-in-series", "once.read.same.here.right-away"} <= broken
    assert broken & matching(report, JUST_KEYS) == set()
    assert "empty" in report["by id"]["answers.empty"]["what"] and report["by id"]["answers.empty"]["effects"]["seen"] == 3


def test_an_endpoint_that_knows_no_keys_is_broken_almost_everywhere(site, drill):
    report = quick(drill, site("naive"))
    assert ids(report, BROKEN) | ids(report, NOT_APPLICABLE) >= set(report["by id"]) - matching(report, [*JUST_KEYS, "failures.*"])
    assert ids(report, BROKEN) & matching(report, JUST_KEYS) == set(), findings(report)
    assert report["by id"]["repeats.100-in-series"]["effects"]["seen"] == 101


def test_json_that_is_refused_in_another_order_is_told_but_not_broken(site, drill):
    """What is compared of a payload is the endpoint's choice."""
    report = quick(drill, site("raw-bytes"))
    assert findings(report) == [] and report["code"] == 0
    for one in ["once.read.reordered.here.right-away", "at-once.read.reordered.here.during"]:
        assert "another order is refused" in report["by id"][one]["what"]


# --- Crashes -----------------------------------------------------------------------------------------

CRASH = ["--only", "failures.restart-during", "--settle-max", "100ms", "--recover", "10s"]
SECOND = ["--stall", "2"]  # the first execution is the check's; this one is at work when the crash comes


def test_a_key_that_is_stuck_after_a_crash_is_found(site, drill):
    report = drill(site("stuck-after-crash", *SECOND), *CRASH, code=1)
    assert ids(report, BROKEN) == {"failures.restart-during"}
    what = report["by id"]["failures.restart-during"]["what"]
    assert "stuck" in what and "409" in what


def test_a_crash_meets_its_window_also_where_work_is_quick(site, drill):
    """The first try is answered before the crash, or not; a later one is not."""
    report = drill(site("stuck-after-crash"), *CRASH, code=1)
    assert ids(report, BROKEN) == {"failures.restart-during"}


def test_a_crash_that_lets_the_key_run_again_holds(site, drill):
    report = drill(site("right", *SECOND), *CRASH, code=0)
    assert report["by id"]["failures.restart-during"]["effects"]["seen"] == 1


def test_a_crashed_gateway_that_calls_the_outcome_unknown_holds(gateway, drill):
    """Killed while the server behind it works: run once, or held as unknown."""
    report = drill(gateway("naive", *SECOND), *CRASH, code=0)
    case = report["by id"]["failures.restart-during"]
    assert "unknown" in case["what"] and case["effects"]["seen"] == 0


# --- Before anything is judged -----------------------------------------------------------------------


@pytest.mark.parametrize("kind, words", [("miscounts", "no effect was counted"), ("twice", "move by 2")])
def test_a_counter_that_is_wrong_is_said_and_nothing_is_judged(site, drill, kind, words):
    report = quick(drill, site(kind))
    assert set(report["by id"]) == ids(report, INCONCLUSIVE) and report["requests"] == 1
    assert words in report["by id"]["check.one-effect"]["what"] and words in report["stopped"]
    assert report["code"] == 1


def test_effects_are_counted_by_lines_of_a_log_as_well(site, tmp_path):
    log = tmp_path / "effects.log"
    one = site("lost-cookie", "--log", log)
    done = subprocess.run([HAPAX, "drill", "POST", f"{one.url}/orders", "-d", '{"order": 1, "s": "x"}', "--effect-log", log,
                           "--settle", "5ms", "--json", "--only", "answers.*"], capture_output=True, text=True, timeout=RUN_S)
    report = json.loads(done.stdout)
    assert done.returncode == 1 and ids(report, BROKEN) == {"answers.set-cookie"}


# --- Seeing it again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [
    "once.read.same.here.right-away", "series.reply-lost.same.here.after", "at-once.read.same.here.during",
    "once.read.same.other-tenant.right-away", "once.read.reordered.here.right-away", "keys.missing", "answers.repeat"])
def test_the_printed_command_does_it_again(site, drill, case):
    one = site("naive")
    told = drill(one, "--only", case)["by id"][case]
    assert told["verdict"] == BROKEN
    one.begin_anew()
    # Credentials are not in the report; the command names the variables that hold them.
    assert "Bearer" not in told["curl"]
    subprocess.run(["sh", "-c", told["curl"]], check=False, capture_output=True, timeout=PATIENCE_S,
                   env={**os.environ, "AUTHORIZATION": "Bearer a", "OTHER_AUTHORIZATION": "Bearer b"})
    assert one.count() >= min(told["effects"]["seen"], told["effects"]["most"] + 1)


# --- Reports -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """All formats of one run, with findings in it."""
    from subjects import WrongServer
    folder = tmp_path_factory.mktemp("reports")
    one = WrongServer("no-fingerprint", folder)
    files = {name: folder / f"drill.{name}" for name in ["junit", "tap", "html", "json"]}
    options = [word for name in ["junit", "tap", "html"] for word in (f"--{name}", files[name])]
    try:
        done = subprocess.run(
            [HAPAX, "drill", "POST", f"{one.url}/orders", "-d", '{"order": "{unique}", "x": "</pre><script> & \'"}',
             "--effect-url", f"{one.url}/count#/total", "--settle", "5ms", "--times", "2", "--rounds", "2",
             "--skip", "repeats.100-*", "--json", *options],
            capture_output=True, text=True, timeout=RUN_S)
    finally:
        one.stop()
    assert done.returncode == 1, done.stderr
    files["json"].write_text(done.stdout)
    return {name: path.read_text() for name, path in files.items()}


def test_all_formats_say_the_same(reports):
    cases = json.loads(reports["json"])["cases"]
    verdicts = [case["verdict"] for case in cases]
    assert {BROKEN, HOLDS, NOT_APPLICABLE} == set(verdicts)
    junit = reading.junit(reports["junit"])
    assert junit == {f"{case['group']}/{case['id']}": case["verdict"] for case in cases}
    points, bail = reading.tap(reports["tap"])
    assert bail is None
    assert [(ok, text.split(": ")[0], skip is not None) for ok, text, skip, _ in points] == [
        (case["verdict"] != BROKEN, case["id"], case["verdict"] == NOT_APPLICABLE) for case in cases]
    assert [below["again"] for _, _, _, below in points if below] == [c["curl"] for c in cases if c["verdict"] == BROKEN]


def test_the_page_shows_the_matrix_and_each_finding(reports):
    cases = json.loads(reports["json"])["cases"]
    page = reading.Page(reports["html"])
    cells = page.matrix(reports["html"])
    words = {BROKEN: "broken", HOLDS: "holds", NOT_APPLICABLE: "na"}
    assert sorted(cells) == sorted(words[case["verdict"]] for case in cases if case["axes"] is not None)
    broken = [case for case in cases if case["verdict"] == BROKEN]
    assert [text for text in page.texts["code"] if "curl" in text] == [case["curl"] for case in broken]
    assert set(page.ids) == {f"case-{cases.index(case) + 1}" for case in broken}
