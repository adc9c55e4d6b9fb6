"""Reads the drill's reports as others would: JUnit XML, TAP 14, HTML. What they may not hold is an error here."""

import html.parser
import re
import xml.etree.ElementTree as ElementTree

import yaml


def junit(text):
    """{"group.id": verdict}; the counts of each suite and of all agree with what is in them."""
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    found, counts = {}, {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in root:
        assert suite.tag == "testsuite"
        cases = suite.findall("testcase")
        here = {"tests": len(cases)}
        for word, tag in [("failures", "failure"), ("errors", "error"), ("skipped", "skipped")]:
            here[word] = len(suite.findall(f"testcase/{tag}"))
        assert {word: int(suite.get(word)) for word in here} == here
        counts = {word: counts[word] + here[word] for word in counts}
        for case in cases:
            [*child] = case
            verdict = child[0].get("type") or "not applicable" if child else "holds"
            name = f"{case.get('classname').removeprefix('drill').lstrip('.')}/{case.get('name').split(': ')[0]}"
            assert name not in found
            found[name] = verdict
    assert {word: int(root.get(word)) for word in counts} == counts
    return found


POINT = re.compile(r"(not )?ok (\d+) - ((?:[^#\\]|\\[#\\])*?)(?: # (SKIP|TODO)(?: (.*))?)?")


def tap(text):
    """[(ok, description, reason of a SKIP or None, what stands below)] and why it bailed out or None."""
    lines = text.split("\n")
    assert lines.pop() == "" and lines[0] == "TAP version 14"
    plan = re.fullmatch(r"1\.\.(\d+)", lines[1])
    points, bail, at = [], None, 2
    while at < len(lines):
        assert bail is None, "nothing follows a bail-out"
        line = lines[at]
        at += 1
        if line.startswith("Bail out!"):
            bail = line.removeprefix("Bail out! ")
            continue
        match = POINT.fullmatch(line)
        assert match, line
        assert int(match[2]) == len(points) + 1
        below = None
        if at < len(lines) and lines[at] == "  ---":
            end = lines.index("  ...", at)
            assert all(one.startswith("  ") for one in lines[at:end])
            below = yaml.safe_load("\n".join(one[2:] for one in lines[at + 1:end]))
            at = end + 1
        points.append((match[1] is None, re.sub(r"\\(.)", r"\1", match[3]), match[5] if match[4] else None, below))
    assert len(points) == int(plan[1])
    return points, bail


class Page(html.parser.HTMLParser):
    """A page that is whole by itself: balanced, without scripts and without anything that is loaded."""

    VOID = {"meta", "br"}
    ALLOWED = VOID | set("html head title style body header main section article h1 h2 h3 p strong span a ul li dl dt dd "
                         "div table thead tbody tr th td pre code details summary".split())

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.texts, self.cells = [], set(), set(), {}, []
        assert text.startswith("<!DOCTYPE html>\n")
        self.feed(text)
        self.close()
        assert self.open == [], self.open
        assert self.links <= self.ids, self.links - self.ids

    def handle_starttag(self, tag, attributes):
        assert tag in self.ALLOWED, tag
        names = dict(attributes)
        assert not {name for name in names if name.startswith("on")} and "src" not in names and "style" not in names
        if "href" in names:
            assert names["href"].startswith("#")
            self.links.add(names["href"][1:])
        if "id" in names:
            assert names["id"] not in self.ids
            self.ids.add(names["id"])
        if tag not in self.VOID:
            self.open.append((tag, names.get("class") or ""))
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert tag not in self.VOID and self.open and self.open.pop()[0] == tag, tag

    def handle_data(self, data):
        if self.open:
            tag = self.open[-1][0]
            self.texts[tag][-1] += data
            if tag == "style":
                assert "url(" not in data and "@import" not in data

    def matrix(self, text):
        """Verdicts by symbol of the cells of the matrix."""
        body = re.search(r'<table class="matrix">.*?<tbody>(.*?)</tbody>', text, re.S)
        return re.findall(r'<td class="(\w+)(?: edge)?"', body[1]) if body else []
