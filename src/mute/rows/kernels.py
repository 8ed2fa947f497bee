"""The compiled loops: all hot code, and nothing else.

A block is stored feature-major, ``(D, rows)``, with its rows grouped by class: ``bounds`` are the ends of the groups,
``labels`` their classes. So one table serves a contiguous run of numbers and stays in the first-level cache.

A marginal is a table of ``M`` values on a uniform grid: ``values[j]`` is the image of ``origin + j * step``. It is
linear between knots, and the first and the last segment never end, so it is a bijection of the real line.
"""

import numpy as np
from numba import njit

from mute.typing import Foreign

__all__ = [
    "add_exactly", "class_sums", "column_sums", "count", "locate", "merge_bins", "pull", "push", "quantile_tables",
    "quantiles", "summarise",
]  # fmt: skip

# Reassociation lets the sums vectorise; NaN and infinity keep their meaning.
_compiled: Foreign = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})

# A guide with this many cells for each knot leaves less than one knot to step over on average.
_GUIDE_CELLS = 2


@_compiled
def _lookup(x, values, origin, step, logdet):
    top = x.dtype.type(values.shape[0] - 2)
    zero = x.dtype.type(0)
    rate = x.dtype.type(1) / step
    for i in range(x.shape[0]):
        t = (x[i] - origin) * rate
        j = np.int64(max(zero, min(top, t)))
        rise = values[j + 1] - values[j]
        x[i] = values[j] + (t - x.dtype.type(j)) * rise
        if logdet is not None:
            logdet[i] += np.log(rise * rate)


@_compiled
def _search(y, values, origin, step, guide):
    """Invert `_lookup`: find the segment that holds each y, then interpolate with axes swapped."""
    last = values.shape[0] - 2
    cells = guide.shape[0]
    zero = y.dtype.type(0)
    top = y.dtype.type(cells - 1)
    low, high = values[0], values[last + 1]
    rate = y.dtype.type(cells) / (high - low)
    guided = y.shape[0] * 8 > values.shape[0]
    if guided:
        # guide[c]: the segment in which cell c of a uniform grid over the values begins.
        j = 0
        for c in range(cells):
            edge = low + y.dtype.type(c) / rate
            while j < last and values[j + 1] <= edge:
                j += 1
            guide[c] = j
    for i in range(y.shape[0]):
        v = y[i]
        if guided:
            j = np.int64(guide[np.int64(max(zero, min(top, (v - low) * rate)))])
            # The cell is found with rounding: step back if it overshot.
            while j > 0 and values[j] > v:
                j -= 1
            j = min(j + np.int64(values[j + 1] <= v), last)
            while j < last and values[j + 1] <= v:
                j += 1
        else:
            j, end = 0, last + 1
            while end - j > 1:
                middle = (j + end) >> 1
                if values[middle] <= v:
                    j = middle
                else:
                    end = middle
        base = values[j]
        y[i] = origin + step * (y.dtype.type(j) + (v - base) / (values[j + 1] - base))


@_compiled
def push(block, bounds, labels, origin, step, values, logdet):
    """Apply the class-conditional marginals in place: ``block`` (D, rows), tables (K, D), (K, D), (K, D, M).

    The log-slope of every row's map is added to ``logdet`` (rows,), float64, unless it is None.
    """
    for d in range(block.shape[0]):
        for s in range(labels.shape[0]):
            k, run = labels[s], slice(bounds[s], bounds[s + 1])
            slopes = None if logdet is None else logdet[run]
            _lookup(block[d, run], values[k, d], origin[k, d], step[k, d], slopes)


@_compiled
def pull(block, bounds, labels, origin, step, values):
    """Undo `push` in place."""
    guide = np.empty(_GUIDE_CELLS * values.shape[2], np.int32)
    for d in range(block.shape[0]):
        for s in range(labels.shape[0]):
            k = labels[s]
            _search(block[d, bounds[s] : bounds[s + 1]], values[k, d], origin[k, d], step[k, d], guide)


# Without reassociation: the differences below are exact, and must not be simplified away.
@njit(nogil=True, cache=True, error_model="numpy")
def add_exactly(parts, values):
    """Add ``values`` (n,) to ``parts`` (3, n): whole multiples of 1, of 2**-36 and of 2**-72."""
    for i in range(values.shape[0]):
        whole = np.rint(values[i])
        rest = (values[i] - whole) * 2.0**36
        middle = np.rint(rest)
        parts[0, i] += whole
        parts[1, i] += middle
        parts[2, i] += np.rint((rest - middle) * 2.0**36)


@_compiled
def column_sums(x, rows, low, rate, first, second):
    """Add, over some ``rows`` of ``x`` (m, D), what they are above ``low`` (D,) times ``rate`` (D,), and its square."""
    for i in range(rows.shape[0]):
        row = x[rows[i]]
        for d in range(row.shape[0]):
            y = (row[d] - low[d]) * rate[d]
            first[d] += y
            second[d] += y * y


@_compiled
def class_sums(block, bounds, out):
    """Sums of every class and coordinate: ``out`` (K, D), float64."""
    for d in range(block.shape[0]):
        for k in range(bounds.shape[0] - 1):
            x = block[d, bounds[k] : bounds[k + 1]]
            total = 0.0
            for i in range(x.shape[0]):
                total += x[i]
            out[k, d] = total


@_compiled
def summarise(block, bounds, reference, low, high, total, square):
    """Every class and coordinate, arrays (K, D), float64.

    ``low`` and ``high`` are widened to hold the block; ``total`` and ``square`` become the sums of the distances from
    ``reference`` and of their squares.
    """
    for d in range(block.shape[0]):
        for k in range(bounds.shape[0] - 1):
            x = block[d, bounds[k] : bounds[k + 1]]
            if x.shape[0] == 0:
                total[k, d] = square[k, d] = 0.0
                continue
            least = most = x[0]
            first = second = 0.0
            centre = reference[k, d]
            for i in range(x.shape[0]):
                least = min(least, x[i])
                most = max(most, x[i])
                gap = x[i] - centre
                first += gap
                second += gap * gap
            low[k, d], high[k, d] = min(low[k, d], least), max(high[k, d], most)
            total[k, d], square[k, d] = first, second


@_compiled
def count(block, bounds, columns, low, width, counts):
    """Histogram every class of some ``columns`` (C,), adding to ``counts`` (K, C, B + 2).

    The grid is ``low`` and ``width`` (K, C); the ends are for what lies below and above it.
    """
    bins = counts.shape[2] - 2
    for c in range(columns.shape[0]):
        for k in range(bounds.shape[0] - 1):
            x = block[columns[c], bounds[k] : bounds[k + 1]]
            row = counts[k, c]
            rate = 1.0 / width[k, c]
            start = low[k, c]
            for i in range(x.shape[0]):
                t = (x[i] - start) * rate
                row[np.int64(max(0.0, min(bins + 1.0, t + 1.0)))] += 1


@_compiled
def locate(counts, share, first, last):
    """Bins (K, D) in which the cumulative count passes `share` of the rows from below and from above."""
    for k in range(counts.shape[0]):
        for d in range(counts.shape[1]):
            row = counts[k, d]
            limit = share[k] * row.sum()
            j, total = 0, row[0]
            while total <= limit and j < row.shape[0] - 1:
                j += 1
                total += row[j]
            first[k, d] = j
            j, total = row.shape[0] - 1, row[row.shape[0] - 1]
            while total <= limit and j > 0:
                j -= 1
                total += row[j]
            last[k, d] = j


@_compiled
def quantiles(counts, low, width, out):
    """The M quantiles at equal steps of probability, ``out`` (K, D, M), of every histogram of ``counts``."""
    m = out.shape[2]
    for k in range(counts.shape[0]):
        for d in range(counts.shape[1]):
            row = counts[k, d]
            n = row.sum()
            j, total = 0, row[0]
            for i in range(m):
                level = (i + 0.5) / m * n
                while total < level:
                    j += 1
                    total += row[j]
                inside = 1.0 - (total - level) / row[j]
                out[k, d, i] = low[k, d] + width[k, d] * min(max(j - 1 + inside, 0.0), row.shape[0] - 2.0)


@_compiled
def _quantile_table(q, mean, spread, tail, straight, probits, beta, values):
    """Lay the map of quantiles ``q`` to ``probits`` on a uniform grid; return origin and step."""
    m, cells = probits.shape[0], values.shape[0] - 3
    start, step = q[0], (q[m - 1] - q[0]) / cells
    if straight:
        start, step = mean - spread, 2 * spread / cells
    i = 0
    for c in range(cells + 1):
        x = start + step * c
        line = (x - mean) / spread
        if straight:
            values[c + 1] = line
            continue
        while i < m - 2 and q[i + 1] <= x:
            i += 1
        # Quantiles that coincide (ties in the data) are one knot: the step over them is taken by the next segment.
        e = i
        while e > 0 and q[e] >= q[i + 1]:
            e -= 1
        rise = (x - q[e]) / (q[i + 1] - q[e]) if q[i + 1] > q[e] else 0.0
        values[c + 1] = (1 - beta) * line + beta * (probits[e] + min(rise, 1.0) * (probits[i + 1] - probits[e]))
    values[0] = values[1] - step / tail
    values[cells + 2] = values[cells + 1] + step / tail
    return start - step, step


@_compiled
def quantile_tables(q, mean, spread, tail, straight, probits, beta, origin, step, values):
    """Tables of the quantile marginal: quantiles ``q`` (K, D, M) to ``values`` (K, D, cells + 3).

    The map is the blend, by ``beta`` (K,), of ``q`` to ``probits`` (M,) with the line of ``mean`` and ``spread`` (K,
    D); it goes on with the slope ``1 / tail``. Where ``straight``, it is the line alone.
    """
    for k in range(q.shape[0]):
        for d in range(q.shape[1]):
            origin[k, d], step[k, d] = _quantile_table(
                q[k, d], mean[k, d], spread[k, d], tail[k, d], straight[k, d], probits, beta[k], values[k, d]
            )


@_compiled
def merge_bins(values, counts, least, tail, middle):
    """Draw straight lines through the edges that leave at least ``least[k]`` rows between any two, in place.

    ``values`` (K, D, B + 1) holds the probit of every edge, ``tail`` (K, D) the rise over one bin beyond the last edge,
    ``middle`` (K, D) the place of the mean, in bins.
    """
    bins = counts.shape[2]
    for k in range(values.shape[0]):
        for d in range(values.shape[1]):
            row, mass, rise = values[k, d], counts[k, d], tail[k, d]
            left = mass.sum()
            last, held = -1, 0
            for j in range(1, bins):
                held += mass[j - 1]
                if held < least[k] or left - held < least[k]:
                    continue
                if last < 0:
                    for i in range(j):
                        row[i] = row[j] - (j - i) * rise
                else:
                    slope = (row[j] - row[last]) / (j - last)
                    for i in range(last + 1, j):
                        row[i] = row[last] + (i - last) * slope
                left -= held
                last, held = j, 0
            if last < 0:  # too few rows for any edge: the straight line through the mean
                last = 0
                row[0] = -middle[k, d] * rise
            for i in range(last + 1, bins + 1):
                row[i] = row[last] + (i - last) * rise
