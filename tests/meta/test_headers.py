"""Every header is self-contained: it compiles alone. The public ones do so in C++, too."""

import concurrent.futures
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", f"-I{ROOT}/src", "-D_GNU_SOURCE"]
FLAGS += subprocess.run(["pkg-config", "--cflags", "libpq"], capture_output=True, text=True, check=True).stdout.split()


def compile_alone(command, header):
    result = subprocess.run(
        [*command, *FLAGS, "-"],
        input=f'#include "{header}"\n',
        capture_output=True,
        text=True,
    )
    return header, result.returncode, result.stderr


def check(command, headers):
    assert headers
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda h: compile_alone(command, h), headers))
    failed = [(header, error) for header, code, error in results if code != 0]
    assert failed == []


def test_every_header_compiles_alone():
    headers = [str(p.relative_to(ROOT / "src")) for p in sorted((ROOT / "src").rglob("*.h"))]
    check(["gcc", "-std=c17", "-xc"], headers)


@pytest.mark.parametrize("command", [["gcc", "-std=c11", "-pedantic", "-xc"], ["gcc", "-std=c17", "-xc"]])
def test_public_headers_compile_as_c(command):
    check(command, [f"hapax/{p.name}" for p in sorted((ROOT / "include/hapax").glob("*.h"))])


def test_public_headers_compile_as_cpp():
    check(["clang++", "-std=c++14", "-xc++"], [f"hapax/{p.name}" for p in sorted((ROOT / "include/hapax").glob("*.h"))])
