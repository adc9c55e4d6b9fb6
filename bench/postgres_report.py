"""What a run with --store postgres prints, and its targets; see report.py."""

from report import ratio, table, value_of

PAIRS = {"hapax": "hapax", "by hand": "by hand: INSERT ... ON CONFLICT, UPDATE (pgbench)"}


def print_pairs(found):
    print("### PostgreSQL: pairs of claim and answer\n")
    for row in found["rows"]:
        row["hapax"].setdefault("of", row["ratio"])
    table(["clients", "", "pairs/s", "of by hand", "p50 ms", "p99 ms", "bytes of log/pair", "full pages/pair", "syncs/pair",
           "commits/pair", "CPU server us/pair", "CPU client us/pair"],
          [[str(row["clients"]), title, f"{r['pairs_per_s']:,.0f}", ratio(r.get("of", 1)),
            *(f"{r[p]:.2f}" if p in r else "" for p in ("p50_ms", "p99_ms")), f"{r['wal_bytes']:,.0f}",
            f"{r['full_pages']:.2f}", f"{r['syncs']:.2f}", f"{r['commits']:.2f}", f"{r['server_cpu_us']:.0f}",
            f"{r['client_cpu_us']:.0f}"]
           for row in found["rows"] for who, title in PAIRS.items() for r in [row[who]]])
    ours = found["rows"][0]["hapax"]
    print(f"hapax: {ours['lanes']:.0f} lanes, {ours['batch']:.1f} operations in a batch. fdatasync of 4 KiB: "
          f"{found['sync_us']:.0f} us in place, {found['growing_us']:.0f} us in a growing file.\n")


def print_trips(rows):
    print("### PostgreSQL: round trips and statements\n")
    names = ("trips_a_pair", "statements_a_pair", "trips_a_batch", "statements_a_batch")
    table(["", "clients", *(n.replace("_a_", "/").replace("trips", "round trips") for n in names)],
          [[PAIRS[r["who"]], str(r["clients"]), *(f"{r[n]:.2f}" if n in r else "" for n in names)] for r in rows])


def print_gateway(rows):
    print("### The gateway on PostgreSQL beside SQLite\n")
    table(["load", "connections", "store", "requests/s", "of SQLite", "p50 ms", "p99 ms", "operations in a batch",
           "bytes to the disk/request", "CPU us/request (server and gateway)", "failed"],
          [[r["load"], str(r["connections"]), r["store"], f"{r['rps']:,.0f}", ratio(r["to_sqlite"]), f"{r['p50_ms']:.2f}",
            f"{r['p99_ms']:.2f}", f"{r['batch']:.1f}", f"{r['disk_bytes']:,.0f}", f"{r['cpu_us']:.1f}", str(r["bad"])]
           for r in rows])


def print_keys(found):
    print("### PostgreSQL: many live keys against few, fresh keys\n")
    for filled in found["filled"]:
        print(f"- {filled['count']:,} keys: filled in {filled['seconds']:.0f} s, {filled['bytes'] / (1 << 20):,.0f} MiB")
    print()
    table(["live keys", "when", "connections", "requests/s", "of few keys", "p50 ms", "p99 ms", "bytes of log/request",
           "full pages/request", "CPU server us/request", "failed"],
          [[f"{r['keys']:,}", r["phase"], str(r["connections"]), f"{r['rps']:,.0f}", ratio(r["to_few"]), f"{r['p50_ms']:.2f}",
            f"{r['p99_ms']:.2f}", f"{r['wal_bytes']:,.0f}", f"{r['full_pages']:.2f}", f"{r['server_cpu_us']:.0f}",
            str(r["bad"])] for r in found["rows"]])


# --- targets ---------------------------------------------------------------------------------------


def fresh_to_sqlite(connections):
    def find(parts):
        return next((r["to_sqlite"] for r in parts.get("gateway", [])
                     if (r["load"], r["connections"], r["store"]) == ("fresh", connections, "PostgreSQL")), None)
    return find


def many_to_few(phase):
    def find(parts):
        rows = parts.get("keys", {}).get("rows", [])
        return min((r["to_few"] for r in rows if r["phase"] == phase), default=None)
    return find


TARGETS = [
    ("pairs from 64 clients, of by hand on the same server", value_of("pairs", "rows", 0, "ratio"), 3.0, True, "{:.2f}"),
    ("gateway, fresh keys, 32 connections, of SQLite", fresh_to_sqlite(32), 0.6, True, "{:.2f}"),
    ("gateway, fresh keys, 256 connections, of SQLite", fresh_to_sqlite(256), 0.6, True, "{:.2f}"),
    ("fresh keys with many live keys, of few, right after a checkpoint", many_to_few("after a checkpoint"), 0.8, True, "{:.2f}"),
    ("fresh keys with many live keys, of few, later", many_to_few("later"), 0.8, True, "{:.2f}"),
]
