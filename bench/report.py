"""What a run prints, as Markdown: the machine, a table for each part, what was left out and why, the targets. And
how that gets into a document (--into), between the marks of its part, so that no figure is copied by hand."""

import contextlib
import io
import re
import sys

from subjects import HAPAX_NAME, MODES


def fill_in(path, name, text):
    """Put text between the lines <!-- bench:NAME --> and <!-- end --> of a document."""
    place = re.compile(rf"(<!-- bench:{name} -->\n).*?(<!-- end -->)", re.S)
    document = path.read_text()
    if not place.search(document):
        sys.exit(f"bench: {path} has no place for {name}: <!-- bench:{name} --> and <!-- end -->")
    path.write_text(place.sub(lambda found: found[1] + text.strip("\n") + "\n" + found[2], document, count=1))


def deliver(options, name, show, *arguments):
    """Print a part, and put it into the document where one is given."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        show(*arguments)
    if options.into:
        fill_in(options.into, name, text.getvalue())
    if not options.json:
        sys.stdout.write(text.getvalue())
        sys.stdout.flush()


def table(titles, rows):
    print("| " + " | ".join(titles) + " |")
    print("|" + "---|" * len(titles))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def ratio(value):
    return "" if value is None else f"{value:.2f}"


def print_facts(facts):
    for name, value in facts.items():
        print(f"- {name}: {value}")
    print()


def print_side(rows):
    print("### Side by side\n")
    for name in dict.fromkeys(r["subject"] for r in rows):
        print(f"- {name}: {MODES[name]}")
    print()
    table(
        ["load", "connections", "subject", "requests/s", "of proxy_pass", "of hand-built always", "p50 ms", "p99 ms",
         "disk bytes/request", "CPU us/request", "memory peak MiB", "failed"],
        [[r["load"], str(r["connections"]), r["subject"], f"{r['rps']:,.0f}", ratio(r["to_proxy"]),
          ratio(r["to_hand_built"]), f"{r['p50_ms']:.2f}", f"{r['p99_ms']:.2f}", f"{r['disk_bytes']:,.0f}",
          f"{r['cpu_us']:.1f}", f"{r['peak_mib']:.0f}", str(r["bad"])] for r in rows])
    sizes = [f"{r['load']} {r['connections']}: {r['batch']:.1f}" for r in rows if r["batch"]]
    print(f"Operations in a batch of hapax: {', '.join(sizes)}\n")


def print_latency(found):
    print("### Added latency, one connection, fresh keys\n")
    table(["", "p50 ms", "p99 ms"],
          [["nginx proxy_pass", f"{found['proxy_p50_ms']:.3f}", f"{found['proxy_p99_ms']:.3f}"],
           ["hapax", f"{found['hapax_p50_ms']:.3f}", f"{found['hapax_p99_ms']:.3f}"],
           ["added", f"{found['added_p50_ms']:.3f}", ""],
           ["two syncs of this disk (fdatasync of 4 KiB in place)", f"{found['two_syncs_ms']:.3f}", ""],
           ["the same where the file grows", f"{found['two_growing_syncs_ms']:.3f}", ""],
           ["added beyond two syncs in place", f"{found['beyond_syncs_ms']:.3f}", ""]])


def print_pairs(found):
    print("### Library: pairs of claim and answer, 64 threads\n")
    table(["", "pairs/s", "p50 ms", "p99 ms"],
          [[name, f"{found[who]['pairs_per_s']:,.0f}", f"{found[who]['p50_ms']:.2f}", f"{found[who]['p99_ms']:.2f}"]
           for name, who in [("hapax bench (SQLite WAL, synchronous=FULL)", "hapax"),
                             ("Redis, appendfsync always: SET NX, SET", "redis")]])
    print(f"Ratio: {found['ratio']:.2f}. Operations in a batch of hapax: {found['hapax']['batch']:.1f}\n")


def print_keys(found):
    print("### Many live keys against few, fresh keys\n")
    for filled in found["filled"]:
        print(f"- {filled['count']:,} keys: filled in {filled['seconds']:.1f} s, {filled['bytes'] / (1 << 20):,.0f} MiB")
    print()
    table(["live keys", "connections", "requests/s", "of few keys", "p50 ms", "p99 ms", "disk bytes/request",
           "CPU us/request", "memory peak MiB"],
          [[f"{r['keys']:,}", str(r["connections"]), f"{r['rps']:,.0f}", ratio(r["to_few"]), f"{r['p50_ms']:.2f}",
            f"{r['p99_ms']:.2f}", f"{r['disk_bytes']:,.0f}", f"{r['cpu_us']:.1f}", f"{r['peak_mib']:.0f}"]
           for r in found["rows"]])


def print_expiry(found):
    print(f"### {found['keys']:,} keys expire at once, {found['connections']} connections, fresh keys\n")
    table(["phase", "requests/s", "p50 ms", "p99 ms", "worst p99 ms", "max ms", "failed", "turns"],
          [[name, f"{p['rps']:,.0f}", f"{p['p50_ms']:.2f}", f"{p['p99_ms']:.2f}", f"{p['worst_p99_ms']:.2f}",
            f"{p['max_ms']:.1f}", str(p["bad"]), str(p["turns"])] for name, p in found["phases"].items()])
    print(f"Removed while it was measured: {found['removed']:,.0f} in {found['removal_s']:.0f} s\n")


def print_instructions(rows, width, rounds, requests):
    print(f"### Instructions a request: {width} in step, median of {rounds} times {requests}\n")
    table(["", "loop", "lane", "other threads", "operations in a batch", "rounds apart by"],
          [[r["kind"], f"{r['loop']:,.0f}", f"{r['lane']:,.0f}", f"{r['other']:,.0f}", f"{r['batch']:.1f}",
            f"{r['spread']:.1%}"] for r in rows])


def print_skipped(skipped):
    if skipped:
        print(f"Left out ({len(skipped)}):")
        for what, why in skipped:
            print(f"- {what}: {why}")
        print()


# --- targets ---------------------------------------------------------------------------------------


def side_value(load, connections, key):
    def find(parts):
        for row in parts.get("side", []):
            if (row["load"], row["connections"], row["subject"]) == (load, connections, HAPAX_NAME):
                return row[key]
        return None
    return find


def memory_peak(parts):
    return max((r["peak_mib"] for r in parts.get("side", []) if r["subject"] == HAPAX_NAME), default=None)


def value_of(part, *path):
    def find(parts):
        at = parts.get(part)
        for step in path if at is not None else ():
            at = at[step]
        return at
    return find


def many_keys_ratio(parts):
    rows = parts.get("keys", {}).get("rows")
    return min(r["to_few"] for r in rows) if rows else None


def expiry_p99_ratio(parts):
    phases = parts.get("expiry", {}).get("phases")
    return phases["during"]["p99_ms"] / phases["before"]["p99_ms"] if phases else None


# What it is, how to find it, the bound, whether more is better, how to write it.
TARGETS = [
    ("fresh keys, 32 connections, of proxy_pass", side_value("fresh", 32, "to_proxy"), 0.45, True, "{:.2f}"),
    ("fresh keys, 256 connections, of proxy_pass", side_value("fresh", 256, "to_proxy"), 0.55, True, "{:.2f}"),
    ("fresh keys, 32 connections, of hand-built always", side_value("fresh", 32, "to_hand_built"), 1.3, True, "{:.2f}"),
    ("fresh keys, 256 connections, of hand-built always", side_value("fresh", 256, "to_hand_built"), 1.5, True,
     "{:.2f}"),
    ("p99, fresh keys, 32 connections, of hand-built always", side_value("fresh", 32, "p99_to_hand_built"), 1.0, False,
     "{:.2f}"),
    ("disk bytes a fresh request, 32 connections", side_value("fresh", 32, "disk_bytes"), 9000, False, "{:,.0f}"),
    ("replays, 32 connections, of hand-built always", side_value("replays", 32, "to_hand_built"), 2.0, True, "{:.2f}"),
    ("replays, 32 connections, of nginx return 200", side_value("replays", 32, "to_static"), 0.5, True, "{:.2f}"),
    ("memory, the most of all loads, MiB", memory_peak, 200, False, "{:.0f}"),
    ("added latency beyond two syncs, one connection, ms", value_of("latency", "beyond_syncs_ms"), 0.15, False, "{:.3f}"),
    ("library pairs, 64 threads, of Redis always", value_of("pairs", "ratio"), 2.5, True, "{:.2f}"),
    ("fresh keys with many live keys, of few", many_keys_ratio, 0.8, True, "{:.2f}"),
    ("p99 while keys expire, of before", expiry_p99_ratio, 2.0, False, "{:.2f}"),
]


def check_targets(parts, targets):
    for what, find, bound, more, form in targets:
        seen = find(parts)
        met = None if seen is None else seen >= bound if more else seen <= bound
        yield {"target": what, "bound": ("at least " if more else "at most ") + form.format(bound),
               "seen": None if seen is None else form.format(seen), "met": met}


def print_targets(targets):
    print("### Targets\n")
    words = {True: "met", False: "not met", None: ""}
    table(["target", "bound", "seen", ""],
          [[t["target"], t["bound"], t["seen"] or "not measured", words[t["met"]]] for t in targets])


def print_end(skipped, targets):
    print_skipped(skipped)
    print_targets(targets)
