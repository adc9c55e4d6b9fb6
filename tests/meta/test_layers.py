"""Includes go one way: docs/ARCHITECTURE.md says which layer may use which."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A layer may include its own headers and those of the layers named here.
MAY_USE = {
    "base": set(),
    "core": {"base"},
    "store": {"base", "core"},
    "engine": {"base", "core", "store"},
    "net": {"base", "core"},
    "config": {"base", "core"},
    "client": {"base", "core", "net"},
    "observe": {"base", "engine"},
    "run": {"base"},
    "gateway": {"base", "core", "engine", "net", "config", "observe"},
    "admin": {"base", "core", "engine", "net", "gateway"},
    "drill": {"base", "core", "net"},
    "cli": {"base", "run", "drill", "core", "store", "engine", "net", "config", "gateway", "admin"},
}

# A library outside the system's own stands behind one layer.
LIBRARIES = {
    r"openssl/evp": {"base"},
    r"openssl/(ssl|bio|x509)": {"net"},
    r"openssl/err": {"base", "net"},
    r"sqlite3\.h": {"store"},
    r"libpq-fe\.h": {"store"},
    r"uv\.h": {"net"},
    r"yaml\.h": {"config"},
    r"(zlib\.h|brotli/)": {"core"},
    r"jansson\.h": {"gateway", "admin", "cli", "drill"},
}

# Pure: no clocks, threads, files or sockets in core/.
CORE_FORBIDDEN = re.compile(r"#include <(time|pthread|stdio|unistd|fcntl|sys/|uv|netinet)[^>]*>")


def sources():
    found = sorted((ROOT / "src").rglob("*.[ch]"))
    assert len(found) > 50, "the sources are not where this test looks"
    return found


def includes(path):
    for line in path.read_text().splitlines():
        match = re.match(r'\s*#include\s+(["<])([^">]+)[">]', line)
        if match:
            yield match.group(1), match.group(2)


def layer_of(path):
    return path.relative_to(ROOT / "src").parts[0]


def test_every_layer_is_known():
    assert {layer_of(p) for p in sources()} == set(MAY_USE)


def test_layers_include_downwards_only():
    wrong = []
    for path in sources():
        layer = layer_of(path)
        for kind, name in includes(path):
            top = name.split("/")[0]
            if kind == '"' and top in MAY_USE and top != layer and top not in MAY_USE[layer]:
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert wrong == []


def test_each_library_stands_behind_one_layer():
    wrong = []
    for path in sources():
        for _, name in includes(path):
            for pattern, layers in LIBRARIES.items():
                if re.match(pattern, name) and layer_of(path) not in layers:
                    wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert wrong == []


def test_core_reads_no_clock_and_does_no_io():
    wrong = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in sources()
        if layer_of(path) == "core"
        for line in path.read_text().splitlines()
        if CORE_FORBIDDEN.match(line) or '"base/clock.h"' in line or '"base/log.h"' in line
    ]
    assert wrong == []


def test_the_library_part_never_logs():
    wrong = [
        str(path.relative_to(ROOT))
        for path in sources()
        if layer_of(path) in {"core", "store", "engine"} and '"base/log.h"' in path.read_text()
    ]
    assert wrong == []
