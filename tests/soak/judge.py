"""Does something grow? Decided from samples over a run.

The first quarter is warm-up: pools, caches and files fill. Then the median of the second quarter is compared with
that of the last one, so that single peaks decide nothing and a steady growth shows at half its size. What may grow
at most is stated for each series; a ceiling, where there is one, holds for every sample."""

import dataclasses
import statistics

SAMPLES_MIN = 5  # in each of the two quarters


@dataclasses.dataclass(frozen=True)
class Allowance:
    absolute: float = 0.0
    relative: float = 0.0
    ceiling: float = None

    def of(self, early):
        return max(self.absolute, self.relative * early)


@dataclasses.dataclass
class Verdict:
    name: str
    early: float
    late: float
    highest: float
    allowed: float
    complaint: str = None  # None: flat

    @property
    def growth(self):
        return self.late - self.early


def judge(name, points, allowance):
    """points: (seconds since the start, value), in order. Too few of them is a complaint: what was not seen is not flat."""
    length = points[-1][0] if points else 0
    early = [v for t, v in points if length / 4 <= t < length / 2]
    late = [v for t, v in points if t >= length * 3 / 4]
    if len(early) < SAMPLES_MIN or len(late) < SAMPLES_MIN:
        return Verdict(name, 0, 0, 0, 0, f"{name}: only {len(early)} and {len(late)} samples to compare, "
                                         f"{SAMPLES_MIN} are needed")
    verdict = Verdict(name, statistics.median(early), statistics.median(late), max(v for _, v in points), 0)
    verdict.allowed = allowance.of(verdict.early)
    if verdict.growth > verdict.allowed:
        verdict.complaint = (f"{name} grows: {verdict.early:,.0f} in the second quarter, {verdict.late:,.0f} in the "
                             f"last one; {verdict.growth:,.0f} more, {verdict.allowed:,.0f} allowed")
    elif allowance.ceiling is not None and verdict.highest > allowance.ceiling:
        verdict.complaint = f"{name} reached {verdict.highest:,.0f}, above its ceiling of {allowance.ceiling:,.0f}"
    return verdict


def table(verdicts):
    rows = [("series", "2nd quarter", "last quarter", "growth", "allowed", "highest", "")]
    for v in verdicts:
        rows.append((v.name, *(f"{n:,.0f}" for n in (v.early, v.late, v.growth, v.allowed, v.highest)),
                     "GROWS" if v.complaint else "flat"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))]) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
