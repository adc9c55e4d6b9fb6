"""What the clients' and the upstream's logs say about the promises. The gateway is not asked.

Of each key:
 - after an effect no request reaches the upstream again, whatever became of its answer (on_unknown is hold),
   and none while an earlier one is being answered; only a 503, by which the upstream says that it did nothing,
   may be followed by another;
 - all final answers are one: the status and the body that the upstream gave for this key and payload, or the
   word that its outcome is unknown; once told, every later answer is that, or 422 to another payload;
 - 422 and "unknown" come only where there is a reason;
 - at the end it has a final answer.

Anything else that a client is told, but for a documented "try later", is a fault, too."""

import collections
import dataclasses

FINAL_MARKERS = {"executed", "replayed", "attached"}
RETRY = {(409, "in-progress"), (503, "store-unavailable"), (503, "overloaded"), (502, "upstream-unreachable")}
RETRY_AT_THE_END = {(409, "in-progress")}
UNKNOWN_STATUSES = {"held": {409}, "unknown": {502, 504}}
HANG_NS = 25_000_000_000  # clients wait 30 s, or leave within 16 ms
TROUBLE_NS = 1_000_000_000  # what a kill ends may end that much later
UNKNOWN = "unknown"


@dataclasses.dataclass
class Ask:
    """A client's request and what came of it; fields as clients.c logs them."""

    start: int
    end: int
    client: int
    key: str
    variant: str
    phase: str
    status: int
    marker: str
    problem: str
    digest: str

    @property
    def verdict(self):
        """What this answer says for good, or None."""
        if self.problem == "outcome-unknown":
            return UNKNOWN
        if self.status in (201, 500) and self.problem == "-":
            return (self.status, self.digest)
        return None

    def __str__(self):
        what = f"{self.status} {self.marker} {self.problem} {self.digest}" if self.status else f"no answer: {self.marker}"
        return f"client {self.client:2d} ({self.phase}) asked for variant {self.variant} at {self.start / 1e9:.6f}: {what}"


@dataclasses.dataclass
class Arrival:
    """A request at the upstream; fields as upstream.c logs them."""

    at: int
    number: int
    key: str
    variant: str
    attempt: str
    plan: str
    answered: int = None
    status: int = 0
    digest: str = ""


def read_asks(path):
    asks = []
    for line in open(path):
        f = line.split()
        asks.append(Ask(int(f[0]), int(f[1]), int(f[2]), f[3], f[4], f[5], int(f[6]), f[7], f[8], f[9]))
    return asks


def read_arrivals(path):
    arrivals = {}
    for line in open(path):
        f = line.split()
        if f[0] == "A":
            arrivals[int(f[2])] = Arrival(int(f[1]), int(f[2]), f[3], f[4], f[5], f[6])
        else:
            a = arrivals[int(f[2])]
            a.answered, a.status, a.digest = int(f[1]), int(f[3]), f[4]
    return list(arrivals.values())


@dataclasses.dataclass
class Fault:
    key: str
    at: int
    text: str


class Story:
    """All that happened to the keys of one store."""

    def __init__(self, asks, arrivals, kills, store_may_stand_still=False):
        self.asks = collections.defaultdict(list)
        self.arrivals = collections.defaultdict(list)
        self.kills = kills  # (ns, text), in order
        # Whose answer can't be stored for too long is told "unknown" (not "held": that is for good), and the gateway goes on
        # trying.
        self.store_may_stand_still = store_may_stand_still
        for ask in sorted(asks, key=lambda a: a.end):
            self.asks[ask.key].append(ask)
        for arrival in arrivals:
            self.arrivals[arrival.key].append(arrival)

    def faults(self):
        found = []
        for key in self.asks.keys() | self.arrivals.keys():
            asks, arrivals = self.asks[key], self.arrivals[key]
            for rule in (self.effects, self.answers, self.verdicts, self.ending):
                found += [Fault(key, at, text) for at, text in rule(asks, arrivals)]
        return sorted(found, key=lambda f: f.at)

    def effects(self, asks, arrivals):
        for before, after in zip(arrivals, arrivals[1:]):
            if before.plan != "busy":
                yield after.at, f"arrival {after.number} after the effect of arrival {before.number}"
            elif before.answered is None or before.answered > after.at:
                yield after.at, f"arrival {after.number} while arrival {before.number} was in flight"
        for a in arrivals:
            if not any(ask.variant == a.variant and ask.start < a.at for ask in asks):
                yield a.at, f"arrival {a.number}: nobody has asked for that"

    def answers(self, asks, arrivals):
        for ask in asks:
            if ask.status == 0:
                if ask.phase == "end" or ask.marker == "broken" or ask.end - ask.start > HANG_NS:
                    yield ask.end, f"no answer: {ask.marker}"
            elif ask.verdict == UNKNOWN:
                if ask.status not in UNKNOWN_STATUSES.get(ask.marker, ()):
                    yield ask.end, "unknown, with a wrong status or marker"
                if not self.may_be_unknown(ask, asks, arrivals):
                    yield ask.end, "unknown, though no call broke off and no gateway was killed"
            elif ask.verdict:
                if ask.marker not in FINAL_MARKERS:
                    yield ask.end, "a final answer with a wrong marker"
                if not any((a.status, a.digest, a.variant) == (*ask.verdict, ask.variant) and a.answered
                           and a.answered < ask.end for a in arrivals):
                    yield ask.end, "an answer that the upstream has not given for this key and payload"
            elif (ask.status, ask.problem) == (422, "key-reused"):
                if not any(other.variant != ask.variant and other.start < ask.end for other in asks):
                    yield ask.end, "422, though nobody had asked for anything else"
            elif (ask.status, ask.problem, ask.marker) != (503, "-", "released"):
                if (ask.status, ask.problem) not in (RETRY_AT_THE_END if ask.phase == "end" else RETRY):
                    yield ask.end, "an answer that there is no reason for"

    def may_be_unknown(self, ask, asks, arrivals):
        first = min(a.start for a in asks)
        return any(a.plan in ("close", "cut") and a.at < ask.end for a in arrivals) or any(
            first < at < ask.end for at, _ in self.kills)

    def verdicts(self, asks, arrivals):
        told = [ask for ask in asks if ask.verdict and not (self.store_may_stand_still and ask.marker == "unknown")]
        for ask in told[1:]:
            if ask.verdict != told[0].verdict:
                yield ask.end, "a final answer that contradicts an earlier one"
        for ask in [ask for ask in told if ask.marker == "executed"][1:]:
            yield ask.end, "executed a second time"
        for ask in asks:
            if not told or ask.status == 0 or ask.start < told[0].end or ask.verdict:
                continue
            if ask.variant == told[0].variant:
                later = RETRY if self.claimer_may_be_in_doubt(ask, arrivals) else RETRY - RETRY_AT_THE_END
                if (ask.status, ask.problem) not in later:
                    yield ask.end, "no final answer, though one had been given"
            elif (ask.status, ask.problem) not in (RETRY - RETRY_AT_THE_END) | {(422, "key-reused")}:
                yield ask.end, "not 422, though the key was another payload's"
        for ask in told:
            if ask.variant != told[0].variant:
                yield ask.end, "a final answer to another payload"

    def claimer_may_be_in_doubt(self, ask, arrivals):
        """Of several gateways the one that claimed may have lost its store in the commit of the answer. The others find
        it there and replay it; that one says "in progress" until the store tells it, too."""
        return self.store_may_stand_still and any(
            a.answered and a.answered < at + TROUBLE_NS and at < ask.end for a in arrivals for at, _ in self.kills)

    def ending(self, asks, arrivals):
        if not any(ask.phase == "end" and ask.verdict for ask in asks):
            yield max((ask.end for ask in asks), default=0), "no final answer at the end"

    def history(self, key):
        """What happened to a key, in order of time, the kills around it included."""
        lines = [(ask.end, str(ask)) for ask in self.asks[key]]
        for a in self.arrivals[key]:
            lines.append((a.at, f"upstream: arrival {a.number}, variant {a.variant}, attempt {a.attempt}, plan {a.plan}"))
            if a.answered:
                lines.append((a.answered, f"upstream: arrival {a.number} answered: {a.status} {a.digest}"))
        first, last = min(lines)[0], max(lines)[0]
        lines += [(at, f"*** {text}") for at, text in self.kills if first <= at <= last]
        return [f"{at / 1e9:.6f}  {text}" for at, text in sorted(lines)]

    def counts(self):
        """What the story covers, so that a run that tested nothing shows."""
        counts = collections.Counter()
        for key, asks in self.asks.items():
            counts["keys"] += 1
            counts["effects"] += sum(a.plan != "busy" for a in self.arrivals[key])
            counts["503s"] += sum(a.plan == "busy" for a in self.arrivals[key])
            counts["keys held"] += any(ask.verdict == UNKNOWN for ask in asks)
            for ask in asks:
                counts[ask.marker if ask.status and ask.problem == "-" else ask.problem if ask.status else "no answer"] += 1
        calls = [(a.at, a.answered) for arrivals in self.arrivals.values() for a in arrivals]
        counts["kills in a call"] = sum(any(start < at < (end or at + 1) for start, end in calls) for at, _ in self.kills)
        return counts
