"""The documents agree with the code."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read(name):
    return (ROOT / name).read_text()


def test_every_problem_is_documented_with_its_status():
    table = read("src/gateway/problem.h")
    rows = re.findall(r'X\(\w+, "([a-z-]+)", (\d{3}),', table)
    assert len(rows) > 20
    documented = {}
    for statuses, kind in re.findall(r"^\| ([\d, ]+) \| `([a-z-]+)` \|", read("docs/HTTP.md"), re.M):
        documented.setdefault(kind, set()).update(statuses.split(", "))
    used = {}
    for kind, status in rows:
        used.setdefault(kind, set()).add(status)
    assert used == documented


def test_every_marker_is_documented():
    markers = re.findall(r'\[MARK_\w+\] = "([a-z-]+)"', read("src/gateway/problem.c"))
    assert len(markers) == 9
    documented = re.findall(r"^\| `([a-z-]+)` \| ", read("docs/HTTP.md").split("## Errors")[0], re.M)
    assert sorted(markers) == sorted(documented)


def test_every_outcome_and_metric_is_documented():
    operations = read("docs/OPERATIONS.md")
    outcomes = re.findall(r'X\(\w+, "([a-z_]+)", "', read("src/observe/metrics.h"))
    assert len(outcomes) == 17
    metrics = set(re.findall(r'"(hapax_[a-z_]+)"', read("src/observe/metrics.c")))
    assert len(metrics) > 15
    for word in [*outcomes, *metrics]:
        assert f"`{word}" in operations, word


def test_every_event_of_the_log_is_documented_with_its_levels():
    used = {}
    for path in (ROOT / "src").rglob("*.c"):
        for level, event in re.findall(r'log_event\(\s*LOG_LEVEL_(\w+),\s*"([a-z-]+)"', path.read_text()):
            used.setdefault(event, set()).add(level.lower())
    assert len(used) >= 12
    documented = {}
    section = read("docs/OPERATIONS.md").split("## The log\n")[1].split("\n## ")[0]
    for events, levels in re.findall(r"^\| (`.*?`) \| ([a-z, ]+) \|", section, re.M):
        for event in re.findall(r"`([a-z-]+)`", events):
            documented[event] = set(levels.split(", "))
    assert used.keys() == documented.keys()
    assert all(levels <= documented[event] for event, levels in used.items()), used


def test_commands_of_the_readme_exist():
    make = read("Makefile")
    for target in set(re.findall(r"`?make ([a-z]+)", read("README.md") + read("CONTRIBUTING.md"))):
        assert re.search(rf"^([a-z]+ )*{target}( [a-z]+)*:", make, re.M), target
    commands = read("src/cli/commands.c")
    for command in re.findall(r"^build/hapax (\w+)", read("README.md"), re.M):
        assert f'"{command}"' in commands or f"cmd_{command}" in commands, command


def test_links_between_documents_lead_somewhere():
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_error_codes_are_only_appended_to():
    """The numbers are part of the library's interface: this list may only grow at its end."""
    numbers = re.findall(r"X\((HAPAX_E_\w+), (-\d+),", read("include/hapax/error.h"))
    assert numbers[:18] == [
        ("HAPAX_E_ARGUMENT", "-1"), ("HAPAX_E_MEMORY", "-2"), ("HAPAX_E_STORE", "-3"),
        ("HAPAX_E_STORE_FULL", "-4"), ("HAPAX_E_STORE_CORRUPT", "-5"), ("HAPAX_E_STORE_VERSION", "-6"),
        ("HAPAX_E_BUSY", "-7"), ("HAPAX_E_LIMIT", "-8"), ("HAPAX_E_STALE", "-9"), ("HAPAX_E_NOT_FOUND", "-10"),
        ("HAPAX_E_SYNTAX", "-11"), ("HAPAX_E_MISSING", "-12"), ("HAPAX_E_CLOSED", "-13"),
        ("HAPAX_E_TIMEOUT", "-14"), ("HAPAX_E_CONFLICT", "-15"), ("HAPAX_E_SYSTEM", "-16"),
        ("HAPAX_E_UNSUPPORTED", "-17"), ("HAPAX_E_CANCELED", "-18"),
    ]


def test_snippets_stand_in_the_files_that_the_tests_run():
    page = read("docs/POSTGRES.md")
    blocks = re.findall(r"(?:<!-- (\S+) -->\n)?```(\w+)\n(.*?)```", page, re.S)
    assert len(blocks) >= 5
    for name, language, code in blocks:
        assert name or language == "sh", code
        assert not name or code in read(name), f"not in {name}: {code}"


def test_every_function_for_the_users_transaction_is_documented():
    page = read("docs/POSTGRES.md")
    source = read("sql/functions.sql") + read("sql/functions_3.sql")
    made = set(re.findall(r'^CREATE (?:OR REPLACE )?FUNCTION hapax\."?(\w+)"?\(', source, re.M))
    inside = {"transaction_owner", "instant", "as_text", "verdict_of", "refuse_open"}
    assert set(re.findall(r"^\| `hapax\.(\w+)\(", page, re.M)) == made - inside and inside < made
    states = {"invalid_parameter_value": "22023", "null_value_not_allowed": "22004", "program_limit_exceeded": "54000",
              "object_not_in_prerequisite_state": "55000"}
    for word in re.findall(r"ERRCODE = '(\w+)'", source):
        assert states[word] in page, word
