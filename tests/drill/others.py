#!/usr/bin/python3
"""Drill libraries from npm and the gateway, and put what was measured into docs/DRILL.md between its markers.

    others.py [--into docs/DRILL.md] [--keep FOLDER]
    others.py --serve NAME

Each is drilled twice: with the profile that its documentation suggests, and for its effects alone (`queue`). The crash
between request and answer has a run of its own, in which the work lasts until the crash. Needs node, npm (installs exact
versions into the build folder) and redis-server. --keep writes each report as HTML and JSON there. --serve starts one on
port 3000, to see a finding again."""

import argparse
import collections
import contextlib
import datetime
import json
import pathlib
import platform
import re
import shlex
import signal
import subprocess
import sys
import tempfile

from subjects import HAPAX, Gateway, Library, Redis, Unusable, WrongServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
BODY = '{"item": "book {unique}", "count": 1}'
PORT, COUNT_PORT = 3000, 3001  # where --serve listens; documents tell of these
CRASH = "failures.restart-during"
RUN_S = 3600
ABSENT = "\u2013"


def packages():
    lock = json.loads((ROOT / "tests/drill/npm/package-lock.json").read_text())["packages"]
    return {name.removeprefix("node_modules/"): about["version"] for name, about in lock.items() if name}


class Subject:
    """`start(stack, folder, stall, port)` gives the site, which ends with the stack."""

    def __init__(self, name, profile, about, start):
        self.name, self.profile, self.about, self.start = name, profile, about, start
        self.reports, self.command = {}, None


def library(name):
    def start(stack, folder, stall=None, port=0):
        redis = Redis(folder)
        stack.callback(redis.stop)
        site = Library(name, redis, folder, stall, port).begin()
        stack.callback(site.stop)
        return site

    return start


def gateway(stack, folder, stall=None, port=0):
    naive = WrongServer("naive", folder, "--port", COUNT_PORT if port else 0, *(["--stall", stall] if stall else []))
    stack.callback(naive.stop)
    site = Gateway(naive, folder, port).begin()
    stack.callback(site.stop)
    return site


def all_subjects():
    n = packages()
    return [
        Subject("express-idempotency", "stripe",
                f"{n['express-idempotency']} with express-idempotency-redis-adapter "
                f"{n['express-idempotency-redis-adapter']}; the middleware with its defaults, `isHit()` in the handler",
                library("express-idempotency")),
        Subject("@node-idempotency/core", "draft",
                f"{n['@node-idempotency/core']} with @node-idempotency/storage-adapter-redis "
                f"{n['@node-idempotency/storage-adapter-redis']}; `enforceIdempotency: true`, `onResponse` with every "
                "answer, status and headers in `additional`",
                library("@node-idempotency/core")),
        Subject("hapax serve", "draft", "in front of a server that knows nothing of keys (`tests/drill/servers.py naive`); "
                "SQLite, defaults but for `keep_set_cookie: true`", gateway),
    ]


# --- Running -----------------------------------------------------------------------------------------


def options_of(site, profile):
    """The command line, as a user would write it."""
    return ["drill", "POST", f"{site.url}/orders", "-H", "Authorization: Bearer a", "-d", BODY, "--profile", profile,
            "--effect-url", f"{site.count_url}#/total", "--tenant-header", "Authorization: Bearer b",
            "--other-url", f"{site.url}/other", "--fail", "Fail: once", "--restart-cmd", site.restart_command,
            "--settle", "20ms", "--settle-max", "500ms"]


def as_document(text, site):
    """With the ports and files of --serve."""
    for port, told in [(site.port, PORT), (int(site.count_url.split(":")[2].split("/")[0]), COUNT_PORT)]:
        text = text.replace(f"127.0.0.1:{port}/", f"127.0.0.1:{told}/")
    return text.replace(site.restart_command, "RESTART")


def drill(subject, profile, folder, stem, *more, stall=None):
    with contextlib.ExitStack() as stack:
        site = subject.start(stack, folder, stall)
        options = options_of(site, profile)
        command = [HAPAX, *options, *more, "--json", "--html", f"{stem}.html"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=RUN_S, check=False)
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}")
        if profile == subject.profile:
            subject.command = as_document(shlex.join(["hapax", *options[:-4]]).replace(
                shlex.quote(site.restart_command), site.restart_command), site)
        report = json.loads(done.stdout)
        pathlib.Path(f"{stem}.json").write_text(done.stdout)
        for case in report["cases"]:
            case["curl"] = as_document(case["curl"], site)
    assert report["stopped"] is None, report["stopped"]
    return report


def measure(subject, folder, keep):
    for profile in dict.fromkeys([subject.profile, "queue"]):
        print(f"others: {subject.name}, {profile}", file=sys.stderr, flush=True)
        stem = (keep or folder) / f"{subject.name.replace('/', '-').replace(' ', '-')}-{profile}"
        fresh = [pathlib.Path(tempfile.mkdtemp(dir=folder)) for _ in range(2)]
        report = drill(subject, profile, fresh[0], stem, "--skip", CRASH)
        crash = drill(subject, profile, fresh[1], f"{stem}-crash", "--only", CRASH, stall=2)
        [case] = [case for case in crash["cases"] if case["id"] == CRASH]
        report["cases"].append(case)
        report["verdicts"][case["verdict"]] += 1
        report["requests"] += crash["requests"]
        subject.reports[profile] = report


def serve(name):
    [subject] = [subject for subject in all_subjects() if subject.name == name]
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory(prefix="hapax-others-") as folder:
        site = subject.start(stack, pathlib.Path(folder), None, PORT)
        print(f"{site.url}/orders; effects: {site.count_url}#/total; RESTART is:\n{site.restart_command}\nCtrl-C ends it",
              flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


# --- Tables ------------------------------------------------------------------------------------------


def row_of(case):
    """Cases of the matrix are told together, by payload and place."""
    axes = case["axes"]
    if axes is None:
        return f"`{case['id']}`"
    return f"matrix: {axes['payload']} payload, {axes['place'].replace('-', ' ')}"


def cell(cases):
    n = collections.Counter(case["verdict"] for case in cases)
    if not cases or n["not applicable"] == len(cases):
        return ABSENT
    if len(cases) == 1:
        return {"broken": "**broken**"}.get(cases[0]["verdict"], cases[0]["verdict"])
    words = [("holds", "{} hold"), ("broken", "**{} broken**"), ("inconclusive", "{} inconclusive")]
    return ", ".join(text.format(n[word]) for word, text in words if n[word])


def table(titles, rows):
    yield "| " + " | ".join(titles) + " |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def overview(measured):
    rows = []
    for subject in measured:
        for profile, report in subject.reports.items():
            n = report["verdicts"]
            rows.append([subject.name, f"`{profile}`", str(n["holds"]), str(n["broken"]), str(n["inconclusive"]),
                         str(n["not applicable"]), str(report["requests"])])
    yield from table(["", "profile", "hold", "broken", "inconclusive", "not applicable", "requests"], rows)


def by_case(measured):
    reports = [report for subject in measured for report in subject.reports.values()]
    names = dict.fromkeys(row_of(case) for report in reports for case in report["cases"])
    titles = ["case"] + [f"{subject.name}, `{profile}`" for subject in measured for profile in subject.reports]
    rows = []
    for name in names:
        cells = [cell([case for case in report["cases"] if row_of(case) == name]) for report in reports]
        if set(cells) != {ABSENT}:
            rows.append([name, *cells])
    yield from table(titles, rows)


def in_short(case, clauses=2):
    """The first things that were wrong, without quotations."""
    return "; ".join(re.sub(r': ".*', "", case["what"]).split("; ")[:clauses])


def kind_of(case):
    """Findings that differ in numbers only are told once."""
    return case["verdict"], re.sub(r"\d+ times |\b\d+ effects instead of \d+", "", in_short(case, 1))


def code(text):
    return f"```sh\n{text}\n```"


def findings(subject):
    kinds = {}
    for case in subject.reports[subject.profile]["cases"]:
        if case["verdict"] in ("broken", "inconclusive"):
            kinds.setdefault(kind_of(case), []).append(case)
    yield f"#### {subject.name}, `{subject.profile}`\n"
    yield code(subject.command) + "\n"
    if not kinds:
        yield "Nothing is broken.\n"
        return
    rows = [[re.sub(r"([<>*_|\[\]])", r"\\\1", in_short(cases[0])), verdict, str(len(cases)), f"`{cases[0]['id']}`"]
            for (verdict, _), cases in sorted(kinds.items(), key=lambda kind: -len(kind[1]))]
    yield from table(["what happened", "verdict", "cases", "such as"], rows)


def version_of(*command):
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.search(r"\d+\.\d+\.\d+", text)[0]


def facts():
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False)
    yield f"- measured on {datetime.date.today()}, hapax {commit.stdout.strip() or 'without history'}"
    yield f"- machine: {cpu[1] if cpu else platform.machine()}, Linux {platform.release().split('-')[0]}, all on loopback"
    yield (f"- node {version_of('node', '--version')}, express {packages()['express']}, Redis "
           f"{version_of('redis-server', '--version')} without persistence (`tests/drill/npm`)")


def document(measured, skipped):
    yield from facts()
    for subject in measured:
        yield f"- {subject.name}: {subject.about}"
    for name, why in skipped:
        yield f"- {name}: not measured: {why}"
    yield ""
    yield from overview(measured)
    yield from by_case(measured)
    yield ("### What was found\n\nStart the server with `tests/drill/others.py --serve NAME`; what it prints for RESTART crashes "
           "it. The command with `--only` and the name of a case shows that finding alone, with the shell line that does it "
           "again.\n")
    for subject in measured:
        yield from findings(subject)


def fill_in(path, text):
    page = path.read_text()
    begin, end = "<!-- measured: begin -->\n", "<!-- measured: end -->"
    assert page.count(begin) == page.count(end) == 1, f"{path} has no markers"
    head, rest = page.split(begin)
    path.write_text(head + begin + "\n" + text.rstrip("\n") + "\n\n" + end + rest.split(end)[1])


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything started is ended
    subjects = all_subjects()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=pathlib.Path, metavar="FILE", help="the document, between its markers")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="where the reports go")
    parser.add_argument("--serve", choices=[subject.name for subject in subjects], metavar="NAME",
                        help=f"start one: {', '.join(subject.name for subject in subjects)}")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    measured, skipped = [], []
    with tempfile.TemporaryDirectory(prefix="hapax-others-") as folder:
        for subject in subjects:
            try:
                measure(subject, pathlib.Path(folder), options.keep)
                measured.append(subject)
            except Unusable as why:
                skipped.append((subject.name, str(why)))
    if len(measured) < 2:
        sys.exit(f"others: nothing to put beside: {skipped}")
    text = "\n".join(document(measured, skipped))
    print(text)
    if options.into:
        fill_in(options.into, text)


if __name__ == "__main__":
    main()
