"""House rules that a script can check."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

BANNED = re.compile(r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|alloca|strncpy|strncat)\s*\(")
FILE_LINES_MAX = 700


def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    files = [ROOT / name for name in listed.split("\0") if name]
    return [f for f in files if f.is_file()]


def texts(*suffixes):
    for path in tracked():
        if path.suffix in suffixes or (not suffixes and path.suffix not in {".http", ".gz", ".bin"}):
            try:
                yield path, path.read_text()
            except UnicodeDecodeError:
                continue


def code_only(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def test_no_banned_calls():
    wrong = []
    for path, text in texts(".c", ".h"):
        for match in BANNED.finditer(code_only(text)):
            wrong.append(f"{path.relative_to(ROOT)}: {match.group(1)}")
    assert wrong == []


def test_no_file_has_grown_out_of_its_purpose():
    wrong = [
        f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines"
        for path, text in texts(".c", ".h")
        if path.is_relative_to(ROOT / "src") and text.count("\n") > FILE_LINES_MAX
    ]
    assert wrong == []


def test_files_end_with_one_newline_and_hold_no_trailing_blanks():
    wrong = []
    for path, text in texts(".c", ".h", ".py", ".md", ".sql", ".sh", ".cmake", ".yaml", ".txt"):
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            wrong.append(f"{path.relative_to(ROOT)}: end of file")
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip():
                wrong.append(f"{path.relative_to(ROOT)}:{number}")
    assert wrong == []


def test_c_code_is_formatted():
    files = [str(p) for p in tracked() if p.suffix in {".c", ".h"}]
    result = subprocess.run(["clang-format", "--dry-run", "--Werror", *files], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr[:2000]


def test_the_project_stands_alone():
    """Nothing points to places that only one machine has."""
    forbidden = re.compile(r"\.\./" + r"shared|/wo" + r"rk/|/ro" + r"ot/|\.lib" + r"rary")
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group(0)}"
        for path, text in texts()
        for match in forbidden.finditer(text)
        if path != pathlib.Path(__file__).resolve()
    ]
    assert wrong == []


def test_scripts_are_executable():
    wrong = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.parent.name in {"dev", ".ci"} and not path.stat().st_mode & 0o100
    ]
    assert wrong == []
