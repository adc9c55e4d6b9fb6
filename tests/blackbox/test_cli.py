"""The command line against the real binary and real SQLite files; no gateway runs here.

The binary is ${HAPAX_BUILD}/hapax (default: build). Records come from ${HAPAX_BUILD}/tests/tools/hapax_seed.
"""

import json
import os
import pathlib
import pty
import re
import shutil
import sqlite3
import subprocess
import time

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("HAPAX_BUILD", "build")).resolve()
HAPAX = BUILD / "hapax"
SEED = BUILD / "tests" / "tools" / "hapax_seed"
SCOPE = "orders POST /orders -"
HANG_GUARD_S = 120


def environment(**more):
    env = {k: v for k, v in os.environ.items() if k not in ("HAPAX_STORE", "NO_COLOR")}
    env.update(more)
    return env


def hapax(*args, env=None, cwd=None, stdin=subprocess.DEVNULL, code=0, binary=False):
    """Run the program and check its exit code."""
    done = subprocess.run(
        [HAPAX, *map(str, args)], env=env or environment(), cwd=cwd, stdin=stdin, capture_output=True,
        text=not binary, timeout=HANG_GUARD_S)
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def seed(store, *what):
    subprocess.run([SEED, store, *what], check=True, timeout=HANG_GUARD_S)


@pytest.fixture
def store(tmp_path):
    """A store with two records of each kind."""
    uri = f"sqlite:{tmp_path}/hapax.db"
    seed(uri, "done:2", "running:2", "unknown:2", "lapsed:1", "large:1")
    return uri


def rows(*args, **kwargs):
    return [json.loads(line) for line in hapax("keys", "list", "--json", *args, **kwargs).stdout.splitlines()]


def show(store, key, **kwargs):
    return json.loads(hapax("keys", "show", "--json", "--store", store, SCOPE, key, **kwargs).stdout)


# --- help, documents, completion ---------------------------------------------------------------------


def subcommands(text):
    section = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.M)
    return re.findall(r"^  ([a-z]+)", section.group(1), re.M) if section else []


def commands():
    """Every command that runs, as a list of its words."""
    found = []
    waiting = [[]]
    while waiting:
        words = waiting.pop()
        below = subcommands(hapax(*words, "--help").stdout)
        waiting += [words + [word] for word in below]
        if not below:
            found.append(words)
    assert ["keys", "resolve"] in found and ["serve"] in found
    return found


def complete(*words, script=None, cwd=None):
    """What bash offers for the last of the words."""
    script = script or ROOT / "completion" / "hapax.bash"
    program = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hapax; '
        'if ((${#COMPREPLY[@]})); then printf "%s\\n" "${COMPREPLY[@]}"; fi')
    done = subprocess.run(
        ["bash", "-uc", program, "bash", script, "hapax", *words], capture_output=True, text=True, cwd=cwd,
        timeout=HANG_GUARD_S, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_help_completion_and_man_page_list_the_same_options():
    for words in commands():
        text = hapax(*words, "--help").stdout
        in_help = set(re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", text, re.M))
        offered = set(complete(*words, "--"))
        assert in_help == offered, words
        man = (ROOT / "docs" / "man" / f"hapax-{words[0]}.1").read_text()
        for option in in_help - {"--help"}:
            assert f"Fl \\-{option[2:]}" in man, (words, option)


def test_every_command_shows_an_example_of_itself():
    for words in commands():
        examples = hapax(*words, "--help").stdout.split("\nExamples:\n")[1]
        lines = [line for line in examples.splitlines() if not line.startswith("  # ")]
        assert lines
        for line in lines:
            assert "hapax " + " ".join(words) in line


def test_help_word_and_help_option_say_the_same():
    for words in commands():
        assert hapax("help", *words).stdout == hapax(*words, "--help").stdout == hapax(*words, "-h").stdout


def test_help_fits_a_terminal_but_for_examples_and_usage():
    for words in commands() + [[], ["keys"], ["docs"]]:
        text = hapax(*words, "--help").stdout
        body = text.split("\nExamples:\n")[0].split("\n", 1)[1]
        assert max(map(len, body.splitlines())) <= 80, words


def test_committed_documents_are_what_the_program_writes(tmp_path):
    hapax("docs", "man", tmp_path)
    written = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    committed = {p.name: p.read_bytes() for p in (ROOT / "docs" / "man").iterdir()}
    assert written == committed
    assert hapax("docs", "completion").stdout == (ROOT / "completion" / "hapax.bash").read_text()
    assert hapax("docs", "config").stdout == (ROOT / "docs" / "CONFIG.md").read_text()


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs" / "man").glob("*.1")))
def test_mandoc_finds_nothing_to_warn_about(page):
    assert shutil.which("mandoc"), "mandoc is missing: dev/deps test"
    lint = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", ROOT / "docs" / "man" / page], capture_output=True, text=True)
    assert (lint.returncode, lint.stdout) == (0, "")


def test_exit_codes_are_in_help_and_man_page():
    text = hapax("--help").stdout
    man = (ROOT / "docs" / "man" / "hapax-keys.1").read_text()
    for code in (0, 1, 2, 3, 4, 5, 75):
        assert re.search(rf"^  {code} +\S", text, re.M)
        assert f".It {code}\n" in man


def test_bash_completes_commands_options_values_and_files(tmp_path):
    (tmp_path / "my config.yaml").touch()
    (tmp_path / "folder").mkdir()
    assert complete("") == ["serve", "check", "keys", "stats", "migrate", "run", "call", "drill", "bench", "docs", "help", "version"]
    assert complete("ke") == ["keys"]
    assert complete("keys", "re") == ["resolve"]
    assert complete("keys", "list", "--st") == ["--store", "--state"]
    assert complete("keys", "list", "--state", "") == ["running", "done", "unknown"]
    assert complete("keys", "list", "--json", "--state", "=", "u") == ["unknown"]
    assert complete("keys", "list", "--state", "=") == ["running", "done", "unknown"]
    assert complete("keys", "list", "--scope", "") == []
    assert complete("check", "my", cwd=tmp_path) == ["my config.yaml"]
    assert complete("serve", "-c", "my", cwd=tmp_path) == ["my config.yaml"]
    assert complete("docs", "man", "", cwd=tmp_path) == ["folder"]
    assert complete("help", "st") == ["stats"]


# --- usage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args, hint", [
    ([], "usage: hapax"),
    (["kyes"], "did you mean keys?"),
    (["keys"], "usage: hapax keys"),
    (["keys", "lst"], "did you mean list?"),
    (["--json"], "options follow the command"),
    (["keys", "list", "--stat", "done"], "did you mean --state?"),
    (["keys", "list", "--state", "finished"], "running|done|unknown"),
    (["keys", "list", "extra"], "one argument too many: extra"),
    (["keys", "show", "scope-only"], "KEY is missing"),
    (["keys", "show", "--id", "12"], "32 hexadecimal digits"),
    (["keys", "show", "--id", "0" * 32, "--body", "--json"], "leave --json out"),
    (["keys", "show", "s", "key with \x01"], "printable ASCII"),
    (["keys", "resolve", "s", "k"], "--released or --done"),
    (["keys", "resolve", "--released", "--status", "200", "s", "k"], "goes with --done"),
    (["keys", "resolve", "--done", "--status", "199", "s", "k"], "from 200 to 599"),
    (["keys", "resolve", "--done", "-H", "no colon", "s", "k"], "Name: value"),
    (["keys", "resolve", "--done", "-H", "A: b\r\nC: d", "s", "k"], "control character"),
    (["keys", "resolve", "--done", "-H", "content-length: 3", "s", "k"], "frames answers itself"),
    (["keys", "resolve", "--done", "--status", "204", "--body", "x", "s", "k"], "no body"),
    (["serve", "--to", "foo"], "is not an upstream's URL"),
    (["serve"], "--config or --to"),
    (["serve", "--config", "a", "--to", "b"], "exclude each other"),
    (["serve", "--config", "a", "--missing", "pass"], "--missing goes with --to"),
    (["serve", "--to", "http://h", "--missing", "perhaps"], "one of reject|pass"),
    (["stats", "--store", "memory:"], "lives inside its process"),
    (["stats", "--store", "nonsense"], "sqlite:"),
    (["check"], "CONFIG is missing"),
    (["migrate", "--from", "0"], "--from goes with --print"),
    (["migrate", "--store", "memory:"], "lives inside its process"),
])
def test_a_wrong_command_line_is_explained_on_stderr_with_exit_2(args, hint, tmp_path):
    done = hapax(*args, code=2, cwd=tmp_path)
    assert done.stdout == ""
    assert hint in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_messages_do_not_pass_on_what_steers_a_terminal():
    done = hapax("keys", "list", "extra\x1b[31m", code=2)
    assert "\x1b" not in done.stderr and "\\x1b[31m" in done.stderr


@pytest.mark.parametrize("words", [["kyes"], ["help", "kyes"], ["keys", "lits"], ["help", "keys", "lits"]], ids=" ".join)
def test_a_command_that_is_not_there_is_a_wrong_command_line(words):
    assert words[-1] in hapax(*words, code=2).stderr


def test_version_is_told_in_every_way():
    version = json.loads(hapax("version", "--json").stdout)["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    for args in (["version"], ["--version"], ["-V"]):
        assert hapax(*args).stdout == f"hapax {version}\n"


def test_a_full_disk_behind_stdout_is_a_failure():
    with open("/dev/full", "w") as full:
        done = subprocess.run([HAPAX, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "can't write to standard output" in done.stderr


# --- check -------------------------------------------------------------------------------------------

GOOD = """
routes:
  - name: orders
    path: /orders
    to: http://127.0.0.1:3000
"""


def test_check_accepts_a_good_configuration(tmp_path):
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    assert hapax("check", file).stdout == f"{file}: ok, 1 route\n"
    assert json.loads(hapax("check", "--json", file).stdout) == {"file": str(file), "ok": True, "routes": 1}


def test_check_prints_the_effective_configuration_which_is_a_configuration(tmp_path):
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    done = hapax("check", "--print", file)
    assert "ok, 1 route" in done.stderr
    effective = yaml.safe_load(done.stdout)
    assert effective["routes"][0]["to"] == "http://127.0.0.1:3000"
    again = tmp_path / "again.yaml"
    again.write_text(done.stdout)
    assert hapax("check", "--print", again).stdout == done.stdout
    assert json.loads(hapax("check", "--print", "--json", file).stdout)["effective"] == done.stdout


def test_check_names_file_line_and_field_of_a_mistake(tmp_path):
    (tmp_path / "bad.yaml").write_text(GOOD + "    ttl: soon\n")
    done = hapax("check", "bad.yaml", cwd=tmp_path, code=1)  # of a long path, messages show the end only
    assert done.stdout == ""
    assert "bad.yaml:6" in done.stderr and "ttl" in done.stderr
    report = json.loads(hapax("check", "--json", "bad.yaml", cwd=tmp_path, code=1).stdout)
    assert report["ok"] is False and "bad.yaml:6" in report["error"]


def test_check_of_a_missing_file_fails(tmp_path):
    assert "nothing.yaml" in hapax("check", tmp_path / "nothing.yaml", code=1).stderr


# --- stores that are not there -----------------------------------------------------------------------


@pytest.mark.parametrize("command", [
    ["keys", "list"], ["keys", "show", "s", "k"], ["keys", "resolve", "--released", "s", "k"],
    ["keys", "forget", "--yes", "s", "k"], ["stats"]])
def test_a_missing_store_is_not_created(command, tmp_path):
    done = hapax(*command, code=3, cwd=tmp_path)
    assert "there is no store at hapax.db" in done.stderr and done.stdout == ""
    assert "no store at elsewhere.db" in hapax(
        *command, code=3, cwd=tmp_path, env=environment(HAPAX_STORE="sqlite:elsewhere.db")).stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_a_store_is_refused_and_left_alone(tmp_path):
    file = tmp_path / "hapax.db"
    file.write_bytes(b"not a database at all, but long enough to look like a header" * 100)
    before = file.read_bytes()
    for command in (["keys", "list"], ["stats"], ["keys", "forget", "--yes", "s", "k"]):
        done = subprocess.run([HAPAX, *command, "--store", f"sqlite:{file}"], capture_output=True, text=True)
        assert done.returncode in (1, 5) and done.stderr != "" and done.stdout == ""
    assert file.read_bytes() == before


# --- keys list ---------------------------------------------------------------------------------------


def test_list_shows_every_record_in_aligned_columns(store):
    done = hapax("keys", "list", "--store", store)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["STATE", "AGE", "SCOPE", "KEY", "ATTEMPT", "STATUS", "EXPIRES"]
    assert len(lines) == 1 + 8
    for title, values in {"SCOPE": {SCOPE}, "KEY": {"done-000001", "large-000001"}, "STATUS": {"201", "-"}}.items():
        at = lines[0].index(title)
        seen = {line[at:].split("  ")[0].strip() for line in lines[1:]}
        assert values <= seen
        assert all(line[at - 2:at] == "  " for line in lines)
    assert "\x1b" not in done.stdout and done.stderr == ""
    assert not any(line.endswith(" ") for line in lines)


def test_list_as_json_is_one_object_a_line_in_order_of_claims(store):
    listed = rows("--store", store)
    assert [r["key"] for r in listed] == [
        "done-000001", "done-000002", "running-000001", "running-000002", "unknown-000001", "unknown-000002",
        "lapsed-000001", "large-000001"]
    serials = [r["serial"] for r in listed]
    assert serials == sorted(set(serials))
    by_key = {r["key"]: r for r in listed}
    done = by_key["done-000001"]
    assert (done["state"], done["status"], done["kept"], done["body_bytes"]) == ("done", 201, True, 8)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", done["expires"])
    assert by_key["large-000001"]["kept"] is False
    assert by_key["running-000001"]["lease_until"] is not None and by_key["running-000001"]["status"] is None
    assert by_key["lapsed-000001"]["state"] == "unknown"


def test_list_filters_by_state_scope_and_key(store):
    seed(store, "scope=other POST /x -", "done:1")
    assert {r["state"] for r in rows("--store", store, "--state", "running")} == {"running"}
    assert {r["key"] for r in rows("--store", store, "--state", "unknown")} == {
        "unknown-000001", "unknown-000002", "lapsed-000001"}
    assert [r["key"] for r in rows("--store", store, "--scope", "other POST /x -")] == ["done-000001"]
    assert [r["scope"] for r in rows("--store", store, "--key", "done-000001")] == [SCOPE, "other POST /x -"]
    assert rows("--store", store, "--scope", "other") == []
    assert hapax("keys", "list", "--store", store, "--scope", "other").stdout == ""


def test_list_pages_by_limit_and_serial_and_says_how_to_go_on(store):
    every = rows("--store", store)
    seen, after = [], "0"
    while after is not None:
        done = hapax("keys", "list", "--json", "--store", store, "--limit", "3", "--after", after)
        page = [json.loads(line) for line in done.stdout.splitlines()]
        assert 0 < len(page) <= 3
        seen += page
        hint = re.search(r"--after (\d+)$", done.stderr.strip())
        after = hint.group(1) if hint else None
    assert seen == every
    assert hapax("keys", "list", "--store", store, "--limit", "8").stderr == ""


def test_list_takes_the_store_from_the_environment(store):
    assert len(rows(env=environment(HAPAX_STORE=store))) == 8


def test_list_colours_only_a_terminal_that_wants_it(store):
    def on_terminal(**env):
        ours, theirs = pty.openpty()
        subprocess.run([HAPAX, "keys", "list", "--store", store, "--limit", "2"], stdout=theirs,
                       stderr=subprocess.DEVNULL, env=environment(**env), check=True, timeout=HANG_GUARD_S)
        os.close(theirs)
        text = os.read(ours, 65536).decode()
        os.close(ours)
        return text

    assert "\x1b[32mdone\x1b[0m" in on_terminal(TERM="xterm")
    assert "\x1b" not in on_terminal(TERM="xterm", NO_COLOR="1")
    assert "\x1b" not in on_terminal(TERM="dumb")


def test_list_of_a_hundred_thousand_keys_is_complete_and_flat_in_memory(tmp_path):
    store = f"sqlite:{tmp_path}/hapax.db"
    seed(store, "scope=" + "s" * 500, "done:100000")

    def listed(*more):
        """Lines printed, and the most memory used (KiB)."""
        with open(tmp_path / "out", "w") as out:
            child = subprocess.Popen([HAPAX, "keys", "list", "--store", store, *more], stdout=out,
                                     env=environment(ASAN_OPTIONS="quarantine_size_mb=1"))
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        with open(tmp_path / "out") as out:
            return sum(1 for _ in out), usage.ru_maxrss

    for more in ([], ["--json"]):
        titles = 0 if more else 1
        # Half of it already fills the store's page cache; the rest may cost nothing.
        half, half_kib = listed(*more, "--limit", "50000")
        started = time.monotonic()
        every, every_kib = listed(*more)
        print(f"{more}: {time.monotonic() - started:.2f} s, {every_kib} KiB, half of it {half_kib} KiB")
        assert (half, every) == (50000 + titles, 100000 + titles)
        assert every_kib < half_kib + 12 * 1024
    keys = {r["key"] for r in rows("--store", store)}
    assert len(keys) == 100000


# --- keys show ---------------------------------------------------------------------------------------


def test_show_tells_all_about_a_done_record(store):
    record = show(store, "done-000001")
    assert (record["scope"], record["key"], record["state"]) == (SCOPE, "done-000001", "done")
    assert record["answer"] == {
        "status": 201, "kept": True, "body_bytes": 8,
        "head": [["Content-Type", "application/json"], ["X-Order", "1"]]}
    assert record["owner_text"] == "seed"
    text = hapax("keys", "show", "--store", store, SCOPE, "done-000001").stdout
    for line in (r"key +done-000001", r"state +done", r"status +201", r"body +8 bytes",
                 r"head +Content-Type: application/json", r" +X-Order: 1", r"expires .* \(in 23h\)"):
        assert re.search(f"^{line}$", text, re.M), line


def test_show_finds_a_record_by_its_identity(store):
    listed = {r["key"]: r["id"] for r in rows("--store", store)}
    table = hapax("keys", "list", "--id", "--store", store).stdout
    for key, identity in listed.items():
        assert identity in table
        by_id = json.loads(hapax("keys", "show", "--json", "--store", store, "--id", identity).stdout)
        assert by_id["key"] == key and by_id == show(store, key)


def test_show_writes_the_body_as_it_is(tmp_path):
    store = f"sqlite:{tmp_path}/hapax.db"
    body = b"\xff\x01 raw \xf0\x9f\x8d\x89\r\n"
    seed(store, b"body=" + body, "done:1")
    assert hapax("keys", "show", "--body", "--store", store, SCOPE, "done-000001", binary=True).stdout == body


def test_show_body_says_why_there_is_none(store):
    assert "running" in hapax("keys", "show", "-b", "-s", store, SCOPE, "running-000001", code=75).stderr
    assert "unknown" in hapax("keys", "show", "-b", "-s", store, SCOPE, "unknown-000001", code=75).stderr
    assert "too large" in hapax("keys", "show", "-b", "-s", store, SCOPE, "large-000001", code=3).stderr
    assert "not kept" in hapax("keys", "show", "-s", store, SCOPE, "large-000001").stdout


def test_show_of_what_is_not_there_is_not_found(store):
    assert "no such record" in hapax("keys", "show", "-s", store, SCOPE, "nothing", code=3).stderr
    assert hapax("keys", "show", "-s", store, "--id", "0" * 32, code=3).stdout == ""


# --- keys resolve ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["unknown-000001", "lapsed-000001"])
def test_resolve_done_stores_the_answer_that_later_requests_get(store, key, tmp_path):
    body = tmp_path / "answer.json"
    body.write_bytes(b'{"id": 17}\n')
    done = hapax("keys", "resolve", "--store", store, "--done", "--status", "202", "-H", "Content-Type: application/json",
                 "--header", "X-By:  hand ", "--body", f"@{body}", SCOPE, key)
    assert done.stdout == "" and "is done" in done.stderr
    record = show(store, key)
    assert record["state"] == "done"
    assert record["answer"] == {
        "status": 202, "kept": True, "body_bytes": 11,
        "head": [["Content-Type", "application/json"], ["X-By", "hand"]]}
    assert hapax("keys", "show", "--body", "-s", store, SCOPE, key, binary=True).stdout == body.read_bytes()


def test_resolve_done_takes_the_body_from_the_command_line_or_stdin_or_has_none(store, tmp_path):
    hapax("keys", "resolve", "-s", store, "--done", "--body", "text", SCOPE, "unknown-000001")
    assert hapax("keys", "show", "-b", "-s", store, SCOPE, "unknown-000001").stdout == "text"
    source = tmp_path / "body"
    source.write_text("from stdin")
    with open(source) as stdin:
        hapax("keys", "resolve", "-s", store, "--done", "--body=@-", SCOPE, "unknown-000002", stdin=stdin)
    assert hapax("keys", "show", "-b", "-s", store, SCOPE, "unknown-000002").stdout == "from stdin"
    hapax("keys", "resolve", "-s", store, "--done", SCOPE, "lapsed-000001")
    answer = show(store, "lapsed-000001")["answer"]
    assert (answer["status"], answer["head"], answer["body_bytes"]) == (200, [], 0)


def test_resolve_done_with_a_body_that_cannot_be_read_changes_nothing(store, tmp_path):
    done = hapax("keys", "resolve", "-s", store, "--done", "--body", f"@{tmp_path}/none", SCOPE, "unknown-000001", code=1)
    assert "can't read" in done.stderr
    with open(tmp_path / "large", "wb") as large:
        large.truncate(16 * 1024 * 1024 + 1)
    done = hapax("keys", "resolve", "-s", store, "--done", "--body", f"@{tmp_path}/large", SCOPE, "unknown-000001", code=1)
    assert "longer than" in done.stderr
    assert show(store, "unknown-000001")["state"] == "unknown"


@pytest.mark.parametrize("key", ["unknown-000001", "lapsed-000001"])
def test_resolve_released_frees_the_key(store, key):
    done = hapax("keys", "resolve", "--released", "--json", "-s", store, SCOPE, key)
    assert json.loads(done.stdout) == {"state": "absent"}
    hapax("keys", "show", "-s", store, SCOPE, key, code=3)
    hapax("keys", "resolve", "--released", "-s", store, SCOPE, key, code=3)


def test_resolve_works_by_identity(store):
    identity = rows("--store", store, "--key", "unknown-000001")[0]["id"]
    hapax("keys", "resolve", "--released", "-s", store, "--id", identity)
    assert rows("--store", store, "--key", "unknown-000001") == []


def test_resolve_of_what_is_not_unknown_is_a_conflict_that_says_what_to_do(store):
    before = rows("--store", store)
    for how in (["--done"], ["--released"]):
        running = hapax("keys", "resolve", *how, "-s", store, SCOPE, "running-000001", code=4)
        assert "is running" in running.stderr and "wait" in running.stderr
        done = hapax("keys", "resolve", *how, "-s", store, SCOPE, "done-000001", code=4)
        assert "is done" in done.stderr and "forget" in done.stderr
    assert rows("--store", store) == before


# --- keys forget -------------------------------------------------------------------------------------


def test_forget_removes_done_and_unknown_records(store):
    for key in ("done-000001", "unknown-000001", "lapsed-000001", "large-000001"):
        hapax("keys", "forget", "--yes", "-s", store, SCOPE, key)
        hapax("keys", "show", "-s", store, SCOPE, key, code=3)
        hapax("keys", "forget", "-y", "-s", store, SCOPE, key, code=3)


def test_forget_refuses_a_running_record(store):
    assert "is running" in hapax("keys", "forget", "-y", "-s", store, SCOPE, "running-000001", code=4).stderr
    assert show(store, "running-000001")["state"] == "running"


def test_forget_asks_on_a_terminal_and_needs_yes_elsewhere(store):
    assert "--yes" in hapax("keys", "forget", "-s", store, SCOPE, "done-000001", code=2).stderr

    def answering(text):
        ours, theirs = pty.openpty()
        os.write(ours, text)
        done = hapax("keys", "forget", "-s", store, SCOPE, "done-000001", stdin=theirs, code=0 if text == b"y\n" else 1)
        os.close(ours)
        os.close(theirs)
        assert "executed again" in done.stderr

    answering(b"\n")
    answering(b"no\n")
    assert show(store, "done-000001")["state"] == "done"
    answering(b"y\n")
    hapax("keys", "show", "-s", store, SCOPE, "done-000001", code=3)


# --- stats, and other users of the store -------------------------------------------------------------


def test_stats_counts_what_is_there(store):
    stats = json.loads(hapax("stats", "--json", "-s", store).stdout)
    assert stats["running"] == 3 and stats["unknown"] == 2  # a lapsed lease counts as written
    assert stats["records"] == 8 and stats["bytes"] > 0
    text = hapax("stats", "-s", store).stdout
    assert re.search(r"^running +3$", text, re.M) and re.search(r"^records +8$", text, re.M)


def test_a_locked_store_can_be_read_and_changed_later(store):
    lock = sqlite3.connect(store.removeprefix("sqlite:"), isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    assert len(rows("--store", store)) == 8
    done = hapax("keys", "resolve", "--released", "-s", store, SCOPE, "unknown-000001", code=75)
    assert done.stderr != "" and done.stdout == ""
    lock.execute("ROLLBACK")
    hapax("keys", "resolve", "--released", "-s", store, SCOPE, "unknown-000001")
    lock.close()


def test_operators_work_while_another_process_writes(store):
    writer = subprocess.Popen([SEED, store, "scope=busy POST / -", "done:60000"])
    try:
        turns = 0
        while writer.poll() is None or turns == 0:
            assert len(rows("--store", store, "--scope", SCOPE)) in (7, 8)
            if turns == 0:
                hapax("keys", "resolve", "--done", "-s", store, SCOPE, "unknown-000001")
                hapax("keys", "forget", "-y", "-s", store, SCOPE, "done-000001")
            turns += 1
        assert writer.returncode == 0
    finally:
        if writer.poll() is None:
            writer.kill()
            writer.wait()
    assert show(store, "unknown-000001")["state"] == "done"
    hapax("keys", "show", "-s", store, SCOPE, "done-000001", code=3)
    assert len(rows("--store", store, "--scope", "busy POST / -")) == 60000
