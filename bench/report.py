"""What a run prints: the machine, a table for each part, what was left out and why, the targets."""

from subjects import HAPAX_NAME, MODES


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
        print(f"{name + ':':14}{value}")
    print()


def print_side(rows):
    print("## Side by side\n")
    for name in dict.fromkeys(r["subject"] for r in rows):
        print(f"- {name}: {MODES[name]}")
    print()
    table(
        ["load", "connections", "subject", "requests/s", "of proxy_pass", "of hand-built always", "p50 ms", "p99 ms",
         "disk bytes/request", "CPU us/request", "memory peak MiB", "not 2xx"],
        [[r["load"], str(r["connections"]), r["subject"], f"{r['rps']:,.0f}", ratio(r["to_proxy"]),
          ratio(r["to_hand_built"]), f"{r['p50_ms']:.2f}", f"{r['p99_ms']:.2f}", f"{r['disk_bytes']:,.0f}",
          f"{r['cpu_us']:.1f}", f"{r['peak_mib']:.0f}", str(r["bad"])] for r in rows])
    sizes = [f"{r['load']} {r['connections']}: {r['batch']:.1f}" for r in rows if r["batch"]]
    print(f"Operations in a batch of hapax: {', '.join(sizes)}\n")


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


# What it is, how to find it, the bound, whether more is better, how to write it.
TARGETS = [
    ("fresh keys, 32 connections, of proxy_pass", side_value("fresh", 32, "to_proxy"), 0.35, True, "{:.3f}"),
    ("fresh keys, 256 connections, of proxy_pass", side_value("fresh", 256, "to_proxy"), 0.35, True, "{:.3f}"),
    ("replays, 32 connections, of proxy_pass", side_value("replays", 32, "to_proxy"), 1.0, True, "{:.3f}"),
    ("fresh keys, 32 connections, of hand-built always", side_value("fresh", 32, "to_hand_built"), 1.0, True, "{:.3f}"),
    ("fresh keys, 256 connections, of hand-built always", side_value("fresh", 256, "to_hand_built"), 1.0, True,
     "{:.3f}"),
    ("replays, 32 connections, of hand-built always", side_value("replays", 32, "to_hand_built"), 1.0, True, "{:.3f}"),
]


def check_targets(parts):
    for what, find, bound, more, form in TARGETS:
        seen = find(parts)
        met = None if seen is None else seen >= bound if more else seen <= bound
        yield {"target": what, "bound": ("at least " if more else "at most ") + form.format(bound),
               "seen": None if seen is None else form.format(seen), "met": met}


def print_targets(targets):
    print("## Targets\n")
    words = {True: "met", False: "not met", None: ""}
    table(["target", "bound", "seen", ""],
          [[t["target"], t["bound"], t["seen"] or "not measured", words[t["met"]]] for t in targets])
