"""The report's figures, drawn with plotly from the plain values of `Report.to_dict`.

Each function returns a plotly Figure, or None where the report has nothing to draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from mute.evaluation.wording import kept_of, strongest
from mute.typing import Foreign, Json, Label, Setting

__all__ = [
    "adversary_bars",
    "audit_plane",
    "comparison_plane",
    "frontier_plane",
    "frontier_task",
    "kept_bars",
    "layer_curves",
    "leak_curve",
    "rate_gaps",
    "routing_map",
    "row_map",
]

# Okabe and Ito's colours, which colour-blind readers can tell apart, without the yellow that white paper swallows.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#8C8C8C")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "cross", "hexagon", "triangle-down")
INK, GREY, RULE, LUCK, GOOD = "#1f2933", "#9AA5B1", "#E4E7EB", "#D55E00", "#00795A"
PROTOCOLS = {
    "before": ("before erasure", GREY),
    "paper": ("after, taught on training rows", "#56B4E9"),
    "fresh": ("after, taught on unseen rows", "#0072B2"),
}
_READ, _PLANE = "balanced accuracy", "What is kept against what is read"
# Nobody could read numbers in the cells of a larger table.
_MOST_CELLS = 12
_DASHES = ("solid", "dash", "dot")


def adversary_bars(report: Json) -> Foreign:
    """Balanced accuracy of each adversary under each protocol, beside chance and luck."""
    privacy = report["privacy"]
    names = list(dict.fromkeys(a["adversary"] for a in privacy["attacks"]))
    figure = _figure("What each adversary reads, before and after", 420)
    for protocol, (words, colour) in PROTOCOLS.items():
        found = {a["adversary"]: a["balanced_accuracy"] for a in privacy["attacks"] if a["protocol"] == protocol}
        if not found:
            continue
        shown = [n for n in names if n in found]
        figure.add_bar(
            x=shown, y=[found[n]["value"] for n in shown], error_y=_whiskers(found[n] for n in shown), name=words,
            marker_color=colour, hovertemplate="%{x}: %{y:.1%}<extra></extra>",
        )  # fmt: skip
    _level(figure, privacy["chance"], "chance", dash="dash")
    _level(figure, privacy["null"]["fresh"], "luck, once in 1,000", colour=LUCK, dash="dot")
    figure.update_layout(barmode="group", bargap=0.3, bargroupgap=0.06)
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(title=_READ, range=[0, 1.02], tickformat=".0%", dtick=0.25)
    return figure


def leak_curve(report: Json) -> Foreign:
    """Balanced accuracy by the number of rows that the adversary learns from."""
    privacy = report["privacy"]
    name, points = privacy["curve"]
    if not points:
        return None
    rows, found = [n for n, _ in points], [e for _, e in points]
    figure = _figure("Do more rows help the adversary?", 360)
    figure.add_scatter(
        x=rows, y=[e["value"] for e in found], error_y=_whiskers(found), mode="lines+markers",
        line={"color": PALETTE[0], "width": 2}, marker_size=7, name=f"{name} adversary",
        hovertemplate="%{x:,} rows: %{y:.1%}<extra></extra>",
    )  # fmt: skip
    _level(figure, privacy["chance"], "chance", dash="dash")
    ends = [privacy["chance"]] + [v for e in found for v in e.values() if v is not None]
    figure.update_xaxes(
        title="rows to learn from (each step doubles)", type="log", tickvals=rows, ticktext=[f"{n:,}" for n in rows]
    )
    # At least ten points high: noise of a single point should look like one.
    figure.update_yaxes(title=_READ, tickformat=".0%", range=[min(ends) - 0.02, max(max(ends) + 0.02, min(ends) + 0.1)])
    return figure


def row_map(report: Json) -> Foreign:
    """Rows before, after and as counterfactuals, coloured by class."""
    picture, classes = report["picture"], report["about"]["classes"]
    panels = [("before", "classes", "before erasure"), ("after", "classes", "after erasure")]
    if picture["counterfactual"]:
        panels.append(("counterfactual", "targets", "moved to another class"))
    height = 460 + 20 * (len(classes) // 8)  # room for each further line of the legend
    figure = _figure("The rows in two dimensions", height, [title for *_, title in panels], spacing=0.03)
    for column, (name, codes, _) in enumerate(panels, start=1):
        for k, label in enumerate(classes):
            mine = [point for point, code in zip(picture[name], picture[codes], strict=True) if code == k]
            figure.add_scatter(
                x=[x for x, _ in mine], y=[y for _, y in mine], mode="markers",
                marker={**_mark(k), "size": 5, "opacity": 0.6},
                name=_text(label), legendgroup=str(k), showlegend=column == 1, hoverinfo="name", row=1, col=column,
            )  # fmt: skip
    if len(panels) == 3:
        figure.add_scatter(**_arrows(picture), row=1, col=3)
        # Counterfactuals live on the axes of the rows before erasure.
        figure.update_xaxes(matches="x", row=1, col=3)
        figure.update_yaxes(matches="y", row=1, col=3)
    frame = {"showticklabels": False, "showgrid": False, "showline": True, "mirror": True}
    figure.update_xaxes(title="where classes differ most", **frame)
    figure.update_yaxes(**frame)
    figure.update_yaxes(title="largest spread", row=1, col=1)
    figure.update_layout(legend_itemsizing="constant")
    return figure


def _arrows(picture: Json) -> Json:
    n = picture["trajectories"]
    ways = list(zip(picture["before"][:n], picture["counterfactual"][:n], strict=True))
    # A gap after each pair lifts the pen; only the end of a way has a head.
    return {
        "x": [v for start, end in ways for v in (start[0], end[0], None)],
        "y": [v for start, end in ways for v in (start[1], end[1], None)],
        "mode": "lines+markers", "line": {"color": INK, "width": 0.8}, "opacity": 0.55,
        "marker": {"symbol": "arrow", "angleref": "previous", "size": [0, 8, 0] * n, "color": INK},
        "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip


def layer_curves(report: Json) -> Foreign:
    """Negentropy of each class, and what the quadratic adversary reads, after each layer."""
    diagnostics, layers = report["diagnostics"], report["layers"]
    curves = [
        (rows, k, curve)
        for rows, classes in (diagnostics["negentropy"] if diagnostics else {}).items()
        for k, curve in enumerate(classes)
        if any(v is not None for v in curve)
    ]
    panels = ["distance from the law all classes share"] if curves else []
    panels += ["what the quadratic adversary reads"] if layers else []
    if not panels:
        return None
    height = 380 + 20 * (len(report["about"]["classes"]) // 8)
    figure = _figure("How the iterations erase", height, panels, spacing=0.1)
    for rows, k, curve in curves:
        figure.add_scatter(
            x=list(range(len(curve))), y=curve, mode="lines",
            line={"color": _mark(k)["color"], "width": 2, "dash": "solid" if rows == "train" else "dash"},
            name=_text(diagnostics["classes"][k]), legendgroup=str(k), showlegend=rows == curves[0][0], row=1, col=1,
        )  # fmt: skip
    if curves:
        figure.update_yaxes(title="negentropy (nats)", rangemode="tozero", row=1, col=1)
    if layers:
        column = len(panels)
        figure.add_scatter(
            x=[t for t, _ in layers], y=[value for _, value in layers], mode="lines+markers",
            line={"color": INK, "width": 2}, marker_size=7, name="quadratic adversary", showlegend=False, row=1,
            col=column,
        )  # fmt: skip
        _level(figure, report["privacy"]["chance"], "chance", dash="dash", row=1, col=column)
        figure.update_yaxes(title=_READ, tickformat=".0%", row=1, col=column)
    figure.update_xaxes(title="iterations")
    return figure


def audit_plane(report: Json) -> Foreign:
    """Rows kept against classes read, before and after."""
    kept, read, before = kept_of(report), _read_of(report, "fresh"), _read_of(report, "before")
    all_kept = {"value": 1.0, "low": None, "high": None}
    figure = _figure(_PLANE, 360)
    _point(figure, all_kept, before, "before erasure", {"color": GREY})
    _point(figure, kept, read, "after erasure", {"color": PALETTE[0]})
    figure.add_annotation(
        x=kept["value"], y=read["value"], ax=1.0, ay=before["value"], axref="x", ayref="y",
        showarrow=True, arrowhead=2, arrowwidth=1.2, arrowcolor=GREY, standoff=8, startstandoff=8,
    )  # fmt: skip
    return _plane(figure, [kept], report["privacy"]["chance"])


def comparison_plane(reports: dict[str, Json]) -> Foreign:
    """Rows kept against classes read, one point for each method."""
    if not reports:
        return None
    first = next(iter(reports.values()))
    figure = _figure(_PLANE, 420)
    for i, (method, report) in enumerate(reports.items()):
        _point(figure, kept_of(report), _read_of(report, "fresh"), _text(method), _mark(i))
    _level(figure, _read_of(first, "before")["value"], "before", colour=GREY)
    return _plane(figure, [kept_of(r) for r in reports.values()], first["privacy"]["chance"])


def _point(figure: Foreign, kept: Json, read: Json, name: str, mark: Json) -> None:
    figure.add_scatter(
        x=[kept["value"]], y=[read["value"]], error_x=_whiskers([kept]), error_y=_whiskers([read]), mode="markers",
        marker={"size": 12, **mark}, name=name, hovertemplate="kept %{x:.1%}, read %{y:.1%}",
    )  # fmt: skip


def _plane(figure: Foreign, kept: Sequence[Json], chance: float) -> Foreign:
    """Axes, chance and the best corner of the plane of what is kept and what is read."""
    least = min([0.0, *(e["value"] for e in kept)])
    _level(figure, chance, "chance", dash="dash")
    figure.add_scatter(
        x=[1], y=[chance], mode="markers", marker={"size": 14, "symbol": "star", "color": GOOD}, hoverinfo="skip",
        showlegend=False,
    )  # fmt: skip
    figure.add_annotation(
        x=1, y=chance, text="best: all kept, nothing read", showarrow=False, xanchor="right", yanchor="top",
        yshift=-8, font={"size": 13, "color": GOOD},
    )  # fmt: skip
    figure.update_xaxes(
        title="variance of the rows that can be read back", range=[least - 0.03, 1.05], tickformat=".0%"
    )
    figure.update_yaxes(title=_READ, range=[max(chance - 0.12, 0), 1.04], tickformat=".0%")
    return figure


def rate_gaps(report: Json) -> Foreign:
    """Gap between the classes' true positive rates for each label of the task, before and after."""
    if not report["task"]:
        return None
    gaps = {name: _gaps(report["task"][name]) for name in ("before", "after")}
    shown = sorted((label for label in gaps["before"] if label in gaps["after"]), key=gaps["before"].__getitem__)
    if not shown:
        return None
    places = list(range(len(shown)))
    figure = _figure("Is the task easier for one class?", 190 + 24 * len(shown))
    figure.add_scatter(
        x=[v for label in shown for v in (gaps["before"][label], gaps["after"][label], None)],
        y=[v for place in places for v in (place, place, None)], mode="lines", line={"color": RULE, "width": 5},
        hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    for name, words, colour in (("before", "before erasure", GREY), ("after", "after erasure", PALETTE[0])):
        figure.add_scatter(
            x=[gaps[name][label] for label in shown], y=places, mode="markers", marker={"size": 10, "color": colour},
            name=words, text=[_text(label) for label in shown], hovertemplate="%{text}: %{x:.3f}",
        )  # fmt: skip
    classes = [_text(c) for c in report["task"]["before"]["classes"]]
    title = f"rate of {classes[0]} minus rate of {classes[1]}" if len(classes) == 2 else "largest rate minus least"
    figure.update_xaxes(
        title=f"gap in true positive rates: {title}", zeroline=True, zerolinecolor=INK, rangemode="tozero"
    )
    figure.update_yaxes(
        tickvals=places, ticktext=[_text(label) for label in shown], range=[-0.6, len(shown) - 0.4], showgrid=False
    )
    return figure


def _gaps(fairness: Json) -> dict[Label, float]:
    """Gap of each label that at least two classes have."""
    two = len(fairness["classes"]) == 2
    out = {}
    for label, *rates in zip(fairness["labels"], *fairness["tpr"], strict=True):
        known = [rate for rate in rates if rate is not None]
        if len(known) > 1:
            out[label] = known[0] - known[1] if two else max(known) - min(known)
    return out


def routing_map(report: Json) -> Foreign:
    """Shares of each class that the router sends to each."""
    if not report["routing"]:
        return None
    shares = report["routing"]["confusion"]
    places, labels = list(range(len(shares))), [_text(c) for c in report["routing"]["classes"]]
    figure = _figure("Where the router sends the rows of each class", 360)
    figure.add_heatmap(
        z=shares, zmin=0, zmax=1, colorscale=[[0, "#F5F8FB"], [1, PALETTE[0]]],
        texttemplate="%{z:.1%}" if len(shares) <= _MOST_CELLS else None, textfont_size=13, xgap=2, ygap=2,
        showscale=len(shares) > _MOST_CELLS, colorbar_tickformat=".0%",
        hovertemplate="%{y} sent to %{x}: %{z:.1%}<extra></extra>",
    )  # fmt: skip
    plain = {"tickvals": places, "ticktext": labels, "showgrid": False, "showline": False}
    figure.update_xaxes(title="sent to", **plain)
    figure.update_yaxes(title="true class", autorange="reversed", **plain)
    return figure


def kept_bars(report: Json) -> Foreign:
    """What can be read back from erased rows, and which neighbours they keep."""
    utility = report["utility"]
    read = [(f"rows, by {r['reader']}", r["r2"]) for r in utility["reconstruction"]]
    within = [(f"within classes, by {r['reader']}", r["r2_within"]) for r in utility["reconstruction"]]
    near = [(f"nearest {o['share'] * 100:g} %", o["corrected"]) for o in utility["neighbours"]]
    figure = _figure("What is left of the rows", 360)
    for words, bars, colour in (
        ("variance read back", read + within, PALETTE[0]),
        ("neighbours kept, above chance", near, PALETTE[2]),
    ):
        figure.add_bar(
            y=[name for name, _ in bars], x=[e["value"] for _, e in bars], error_x=_whiskers(e for _, e in bars),
            orientation="h", name=words, marker_color=colour, hovertemplate="%{y}: %{x:.1%}<extra></extra>",
        )  # fmt: skip
    values = [e["value"] for _, e in (*read, *within, *near) if e["value"] is not None]
    figure.update_layout(bargap=0.35)
    figure.update_xaxes(title="share kept", range=[min([0.0, *values]), 1.02], tickformat=".0%", dtick=0.25)
    figure.update_yaxes(autorange="reversed", showgrid=False, dtick=1)
    return figure


def frontier_plane(found: Json) -> Foreign:
    """Leak against R²: a line of points for each method and family, from the lossless point on."""
    return _frontier(
        found, "What is left to be read against what is kept", "r2", "R²: variance of the rows that can be read back"
    )


def frontier_task(found: Json) -> Foreign:
    """Leak against task accuracy; None without a task."""
    if found["frontier"]["task_labels"] is None:
        return None
    figure = _frontier(found, "What is left to be read against the task", "task_accuracy", "accuracy in the task")
    commonest = found["frontier"]["commonest"]
    if figure is not None:
        line = {"color": GREY, "width": 1.5, "dash": "dash"}
        figure.add_vline(commonest, line=line, name=f"always the commonest label ({commonest:.1%})", showlegend=True)
    return figure


def _frontier(found: Json, title: str, across: str, words: str) -> Foreign:
    """Leak against the value `across` of each point; a method has a colour, a family a marker and a dash."""
    rows, budget, families = found["rows"], found["frontier"]["max_leak"], found["frontier"]["families"]
    if not rows:
        return None
    methods = list(dict.fromkeys(row["method"] for row in rows))
    figure = _figure(title, 480 + 20 * (len(methods) // 8))
    # The lossless point and the channels of a family are one line.
    for i, method in enumerate(methods):
        colour, mine = _mark(i)["color"], [row for row in rows if row["method"] == method]
        for k, family in enumerate(families):
            line = [row for row in mine if row["share"] >= 1 or row["family"] == family]
            figure.add_scatter(
                **_places(line, across, colour), mode="lines+markers", name=_text(method), legendgroup=method,
                showlegend=k == 0, line={"color": colour, "width": 1.5, "dash": _DASHES[k % len(_DASHES)]},
                marker={"size": [13 if row["share"] >= 1 else 9 for row in line], "color": colour,
                        "symbol": ["star" if row["share"] >= 1 else SYMBOLS[k] for row in line]},
                customdata=[[row["family"], row["share"], row["adversary"]] for row in line],
                hovertemplate="%{customdata[0]}, share %{customdata[1]}: leak %{y:.1%} (%{customdata[2]}), %{x:.1%}",
            )  # fmt: skip
    for name, symbol in [("lossless", "star"), *zip(families, SYMBOLS, strict=False)]:
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=name, marker={"size": 9, "symbol": symbol, "color": GREY}
        )
    chosen = [row for row in rows if row["chosen"]]
    figure.add_scatter(
        **{**_places(chosen, across, INK), "error_x": None, "error_y": None}, mode="markers", hoverinfo="skip",
        name="chosen: largest R² within the budget",
        marker={"size": 20, "symbol": "circle-open", "color": INK, "line": {"width": 2}},
    )  # fmt: skip
    ends = [row["leak"][end] for row in rows for end in ("low", "high")]
    least, most = min(0.0, *ends), max(budget, *ends)
    figure.add_hrect(
        y0=least - most, y1=budget, fillcolor=GOOD, opacity=0.12, line_width=0, layer="below", showlegend=True,
        name=f"budget: erased if the whole interval is here (leak up to {budget:.1%})",
    )  # fmt: skip
    figure.update_xaxes(title=words, tickformat=".0%")
    figure.update_yaxes(
        title="leak: balanced accuracy above chance", tickformat=".1~%", range=[least - 0.01, most * 1.05]
    )
    return figure


def _places(rows: Sequence[Json], across: str, colour: str) -> Json:
    """Leaks of points, with their intervals, against the value `across`, which may have an interval."""
    values = [row[across] for row in rows]
    estimated = bool(values) and isinstance(values[0], dict)
    return {
        "x": [v["value"] for v in values] if estimated else values,
        "y": [row["leak"]["value"] for row in rows],
        "error_x": {**_whiskers(values), "color": colour} if estimated else None,
        "error_y": {**_whiskers(row["leak"] for row in rows), "color": colour},
    }


def _figure(title: str, height: int, panels: Sequence[str] = (), spacing: float = 0.0) -> Foreign:
    """An empty figure in the one look of all, with a panel beside another for each title in `panels`."""
    from plotly import graph_objects as go  # type: ignore[import-untyped]
    from plotly.subplots import make_subplots  # type: ignore[import-untyped]

    axis = {
        "showgrid": True, "gridcolor": RULE, "linecolor": GREY, "zeroline": False, "automargin": True,
        "ticks": "outside", "ticklen": 5, "tickcolor": "rgba(0,0,0,0)", "title": {"standoff": 8, "font": {"size": 13}},
    }  # fmt: skip
    figure = go.Figure()
    if panels:
        figure = make_subplots(1, len(panels), subplot_titles=panels, horizontal_spacing=spacing)
    figure.update_layout(
        template=go.layout.Template(layout={"xaxis": axis, "yaxis": axis, "colorway": PALETTE}),
        title={"text": title, "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top",
               "pad": {"t": 10, "l": 4}, "font": {"size": 16, "weight": 600}},
        font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom"},
        margin={"l": 60, "r": 16, "t": 60, "b": 60},
        height=height,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"font": {"family": "system-ui, sans-serif"}},
    )  # fmt: skip
    figure.update_annotations(font_size=13)
    return figure


def _level(figure: Foreign, value: float, name: str, colour: str = INK, **options: Setting) -> None:
    """A horizontal line that the legend names with its value."""
    line = {"color": colour, "width": 1.5} | ({"dash": options.pop("dash")} if "dash" in options else {})
    figure.add_hline(value, line=line, name=f"{name} ({value:.1%})", showlegend=True, **options)


def _whiskers(estimates: Iterable[Json]) -> Json:
    """Error bars of estimates, none where there is no interval."""
    found = list(estimates)
    return {
        "type": "data", "symmetric": False, "thickness": 1.2, "width": 3, "color": INK,
        "array": [None if e["high"] is None else max(0.0, e["high"] - e["value"]) for e in found],
        "arrayminus": [None if e["low"] is None else max(0.0, e["value"] - e["low"]) for e in found],
    }  # fmt: skip


def _read_of(report: Json, protocol: str) -> Json:
    return (strongest(report, protocol) or {})["balanced_accuracy"]


def _mark(k: int) -> Json:
    """The colour of a class or method, and a shape for each time that the colours come round again."""
    return {"color": PALETTE[k % len(PALETTE)], "symbol": SYMBOLS[k // len(PALETTE) % len(SYMBOLS)]}


def _text(label: Label, most: int = 28) -> str:
    """A user's label as plotly shows it: plotly reads tags, so none may pass."""
    words = str(label)
    return escape(words if len(words) <= most else words[: most - 1] + "…", quote=False)
