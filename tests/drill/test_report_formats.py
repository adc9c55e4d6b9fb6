"""The reports as other programs read them. The golden files are what the C test compares its reports with."""

import html
import pathlib

import reading

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "unit/drill/golden"
HOSTILE = "</pre><script>alert(1)</script> & \"quotes\" 'too' ]]> # \\ {{7*7}} \u202e "


def golden(name):
    return (GOLDEN / name).read_text()


def test_junit_is_read_as_it_was_meant():
    assert reading.junit(golden("report.xml")) == {
        "check/check": "holds",
        "matrix/at-once.read.same.here.right-away": "broken",
        "matrix/once.reply-lost.other.other-path.after": "inconclusive",
        "keys/keys.missing": "not applicable",
        "/all cases were run": "stopped",
    }


def test_junit_keeps_hostile_texts():
    assert HOSTILE in html.unescape(golden("report.xml")) and "<script" not in golden("report.xml")


def test_tap_is_read_as_it_was_meant():
    points, bail = reading.tap(golden("report.tap"))
    assert [(ok, text.split(": ")[0], skip is not None) for ok, text, skip, _ in points] == [
        (True, "check", False), (False, "at-once.read.same.here.right-away", False),
        (False, "once.reply-lost.other.other-path.after", False), (True, "keys.missing", True)]
    assert HOSTILE in points[2][1] and HOSTILE in points[3][2] and HOSTILE in bail
    assert points[1][3] == {
        "verdict": "broken", "message": "2 effects instead of 1", "effects_expected": "1", "effects_seen": "2",
        "answers": "unanswered x 1, 201 x 1, 409 x 6",
        "again": "seq 8 | xargs -P8 -I{} curl -d '{\"n\": 1}' http://127.0.0.1:3000/orders"}
    assert HOSTILE in points[2][3]["message"] and HOSTILE in points[2][3]["again"]


def test_html_is_one_page_that_loads_nothing():
    text = golden("report.html")
    page = reading.Page(text)
    assert {"case-2", "case-3"} <= page.ids
    assert page.texts["code"][0] == "seq 8 | xargs -P8 -I{} curl -d '{\"n\": 1}' http://127.0.0.1:3000/orders"
    assert HOSTILE in page.texts["h1"][0] and any(HOSTILE in code for code in page.texts["code"])
    cells = page.matrix(text)
    assert len(cells) == 243 and cells.count("broken") == cells.count("inconclusive") == 1
