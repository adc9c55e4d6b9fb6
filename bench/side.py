"""Side by side: every subject under every load, taking turns round by round, so that a slow moment of the
machine hits all of them. Ratios are taken within a round; the table gives medians over the rounds."""

import statistics

from measure import Unusable, Usage, metric, note, send_known_keys, wrk
from subjects import (HAND_ALWAYS, HAND_EVERYSEC, NODE, PROXY, STATIC, start_hand_built, start_hapax, start_node, start_proxy,
                      start_upstream)

LOADS = {"fresh": 0, "half": 50, "replays": 100}  # percent of repeats
KEEPS_NOTHING = 2  # how many of the subjects come first and store no answers


def start_plain_and_hapax(bench):
    upstream = start_upstream(bench.servers, bench.run)
    return [upstream, start_proxy(bench.servers, bench.run, upstream.port),
            start_hapax(bench.servers, bench.run, upstream.port)]


def start_subjects(bench):
    subjects = start_plain_and_hapax(bench)
    to = subjects[0].port
    for name, start in [
        (HAND_ALWAYS, lambda: start_hand_built(bench.servers, bench.run, to, "always")),
        (HAND_EVERYSEC, lambda: start_hand_built(bench.servers, bench.run, to, "everysec")),
        (NODE, lambda: start_node(bench.servers, bench.run, to)),
    ]:
        try:
            subjects.append(start())
        except Unusable as why:
            bench.skip(name, str(why))
    for subject in subjects[KEEPS_NOTHING:]:
        note(f"sending the known keys to {subject.name}")
        send_known_keys(subject.port)
    return subjects


def batches(subject):
    """Operations and batches of the gateway so far; nothing for the others."""
    if not subject.admin:
        return 0, 0
    return tuple(metric(subject.admin, f"hapax_batch_operations_{what}") for what in ("sum", "count"))


def take_turn(subject, connections, seconds, repeats):
    usage = Usage(subject.processes)
    before = batches(subject)
    usage.begin()
    found = wrk(subject.port, connections, seconds, repeats)
    used = usage.end(found["requests"])
    operations, count = (after - b for after, b in zip(batches(subject), before))
    return {**found, **used, "batch": operations / max(1, count)}


def ratios(rounds, name, base, what="rps"):
    """The median of a subject's figure over another's in the same round; None when that one is not there."""
    if base not in rounds:
        return None
    return statistics.median(a[what] / max(1e-3, b[what]) for a, b in zip(rounds[name], rounds[base]))


def summarize(load, connections, rounds):
    for name, turns in rounds.items():
        row = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
        for what in ("refused", "bad"):
            row[what] = sum(turn[what] for turn in turns)
        row["peak_mib"] = max(turn["peak_mib"] for turn in turns)
        yield {"load": load, "connections": connections, "subject": name, **row,
               "to_proxy": ratios(rounds, name, PROXY), "to_hand_built": ratios(rounds, name, HAND_ALWAYS),
               "to_static": ratios(rounds, name, STATIC), "p99_to_hand_built": ratios(rounds, name, HAND_ALWAYS, "p99_ms"),
               "all_rps": [round(turn["rps"]) for turn in turns]}


def measure(bench):
    subjects = start_subjects(bench)
    rows = []
    for connections in bench.options.connections:
        for load in bench.options.loads:
            rounds = {subject.name: [] for subject in subjects}
            for number in range(bench.options.rounds):
                for subject in subjects:
                    note(f"{load}, {connections} connections, round {number + 1}/{bench.options.rounds}: "
                         f"{subject.name}")
                    rounds[subject.name].append(take_turn(subject, connections, bench.options.seconds, LOADS[load]))
            rows += summarize(load, connections, rounds)
    return rows
