"""Which columns of a benchmark's rows are drawn, for each benchmark that has pictures."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from chart import Axis, Chart, Line, Panel, Point

Row = dict[str, Any]
Document = dict[str, Any]

LENGTH = Axis("length", 4, "bytes")
TIME = Axis("time", unit="seconds")


class NotStored(Exception):
    """The document lacks the rows of a picture."""


def size(text: str) -> float:
    """Of "16 KiB"."""
    number, unit = text.split()
    return float(number) * 1024.0 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)


def grouped(
    rows: Iterable[Row], panel: Callable[[Row], str], line: Callable[[Row], str], x: Callable[[Row], float],
    y: Callable[[Row], float | None], axis: Axis, error: Callable[[Row], float | None] = lambda row: 0,
) -> list[Panel]:
    """Panels and lines in the order in which they first occur; points from left to right."""
    panels: dict[str, dict[str, list[Point]]] = {}
    for row in rows:
        value = y(row)
        if value is not None:
            points = panels.setdefault(panel(row), {}).setdefault(line(row), [])
            points.append(Point(x(row), value, error(row) or 0))
    def lines(of: dict[str, list[Point]]) -> list[Line]:
        return [Line(name, sorted(points, key=lambda point: point.x)) for name, points in of.items()]
    return [Panel(title, axis, lines(of)) for title, of in panels.items()]


def columns(rows: list[Row], names: dict[str, str], styles: dict[str, str] | None = None, scale: float = 1e-6) -> list[Line]:
    """A line for each of these columns against bytes; times are in us. `styles` has the lines that are dashed, and whose colour they have."""
    lines = []
    for column, name in names.items():
        points = [Point(row["bytes"], row[column] * scale) for row in rows if row[column] is not None]
        like = (styles or {}).get(name)
        lines.append(Line(name, points, "solid" if like is None else "dashed", like or ""))
    return lines


def shaped(document: Document) -> list[Chart]:
    rows: list[Row] = document["rows"]
    best: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        # All choices of the cost model are one line.
        row = {**row, "algorithm": row["algorithm"].split(":")[0]}
        key = (row["algorithm"], row["length"], row["members"])
        if key not in best or row["time_s"] < best[key]["time_s"]:
            best[key] = row
    is_one = len({row["algorithm"] for row in best.values()}) == 1
    same_rate = len({row["mbit"] for row in rows}) == 1
    panel, line = ("algorithm", "length") if is_one else ("length", "algorithm")
    value = "mbit_per_s" if same_rate else "of_rate"
    panels = grouped(
        best.values(), lambda row: row[panel], lambda row: row[line], lambda row: row["members"],
        lambda row: row[value] * row["time_s"] / row["mean_s"], Axis("Mbit/s" if same_rate else "share of the links' rate"),
        lambda row: row[value] * (row["deviation_s"] or 0) / row["mean_s"])
    return [Chart("Bandwidth against the number of members", Axis("members", unit="count"), panels)]


def block_sizes(document: Document) -> list[Chart]:
    panels = grouped(
        document["rows"], lambda row: "Bandwidth by length of the message", lambda row: row["length"],
        lambda row: size(row["block"]), lambda row: row["mbit_per_s"], Axis("Mbit/s"))
    return [Chart("Bandwidth against block size", Axis("block", 4, "bytes"), panels)]


def small(document: Document) -> list[Chart]:
    panels = grouped(
        document["rows"], lambda row: f"{row['network']}, {row['length']}", lambda row: row["path"],
        lambda row: row["members"], lambda row: row["messages_per_s"], Axis("messages/s", 10))
    return [Chart("Messages per second against the number of members", Axis("members", 2), panels)]


def scale(document: Document) -> list[Chart]:
    panels = []
    for platform in dict.fromkeys(row["platform"] for row in document["rows"]):
        own = [row for row in document["rows"] if row["platform"] == platform]
        title = "Fat tree, full bisection" if platform == "fat-tree" else f"Racks, oversubscribed {own[0]['oversubscribed']}"
        [panel] = grouped(
            own, lambda row: title, lambda row: row["algorithm"], lambda row: row["members"],
            lambda row: row["time_ms"] / 1e3, Axis("time", 10, "seconds"))
        for line in panel.lines:
            line.style = "dashed" if line.name.startswith("MPI_") else "solid"
        # No schedule takes fewer steps than blocks - 1 + log2 of the members.
        known = next(row for row in own if row["steps"])
        blocks = round(known["limit"] * known["steps"])
        block_s = known["time_ms"] / 1e3 * known["of_the_rate"] / blocks
        sizes = sorted({row["members"] for row in own})
        fewest = [Point(members, (blocks - 1 + math.ceil(math.log2(members))) * block_s) for members in sizes]
        panels.append(Panel(title, panel.y, [Line("fewest steps", fewest, "dotted"), *panel.lines]))
    return [Chart("Time to the last member against the number of members", Axis("members", 2), panels)]


def store(document: Document) -> list[Chart]:
    if "latencies" not in document:
        raise NotStored("latencies")
    panels = grouped(
        document["latencies"], lambda row: f"{row['in_flight']} in flight", lambda row: row["algorithm"],
        lambda row: row["latency_s"], lambda row: row["share"], Axis("share of objects with at most this latency"))
    return [Chart("Distribution of latencies", Axis("latency", 10, "seconds"), panels)]


def overlapping(document: Document) -> list[Chart]:
    def senders(row: Row) -> str:
        return {row["members"]: "all send", 1: "one sends"}.get(row["senders"], "half of them send")
    panels = grouped(
        document["rows"], lambda row: f"{row['network']}, {row['length']}", senders, lambda row: row["members"],
        lambda row: row["of_a_link"], Axis("of a link's rate, all groups together"),
        lambda row: row["of_a_link"] * (row["deviation_mbit"] or 0) / row["together_mbit"])
    return [Chart("Bandwidth of all groups together against their size", Axis("members of every group", unit="count"), panels)]


def modes(document: Document) -> list[Chart]:
    panels = [panel for column, title in (("MB_per_s", "MB/s"), ("cpu_share_per_member", "cores per member"))
              for panel in grouped(
                  document["rows"], lambda row: f"{title}, {row['length']}", lambda row: row["completion"],
                  lambda row: row["members"], lambda row: row[column], Axis(title))]
    return [Chart("Bandwidth and processor time by completion mode", Axis("members", unit="count"), panels)]


def racks(document: Document) -> list[Chart]:
    panels = grouped(
        document["rows"], lambda row: f"Ranks {row['layout']} over racks", lambda row: row["algorithm"],
        lambda row: float(row["oversubscribed"].split(":")[0]), lambda row: row["of_rate"], Axis("share of the links' rate"))
    return [Chart("Bandwidth against oversubscription", Axis("times that uplinks are oversubscribed", unit="count"), panels)]


def push(document: Document) -> list[Chart]:
    panels = grouped(
        document["rows"], lambda row: f"MTU {row['mtu']}", lambda row: row["way"], lambda row: row["mbit"],
        lambda row: row["of_rate"], Axis("share of the links' rate"))
    return [Chart("Bandwidth of a push against the rate of the links", Axis("Mbit/s", unit="count"), panels)]


def collectives(document: Document) -> list[Chart]:
    charts = [peers(document, operation, column, name) for operation, column, name in (
        ("broadcast", "leaf_us", "broadcast, deepest leaf"), ("allreduce", "average_us", "allreduce, average"))
        if document.get("all")]
    def by(table: str, title: Callable[[Row], str], name: str, about: str, lines: Callable[[list[Row]], list[Line]]) -> None:
        rows: list[Row] = document.get(table, [])
        titles = dict.fromkeys(title(row) for row in rows)
        panels = [Panel(one, TIME, lines([row for row in rows if title(row) == one])) for one in titles]
        if panels:
            charts.append(Chart(about, LENGTH, panels, name))
    by("fig6_7", lambda row: f"broadcast to 16, {row['source']}", "fig6-7", "Broadcast by block size: figures 6 and 7",
       lambda rows: columns(rows, {
           **{f"{block}_B": f"blocks of {block} B" for block in (1025, 2049, 3073, 4097)}, "send_receive": "send/receive",
       }, {"send/receive": ""}))
    model = [row for row in document.get("model_points", []) if row["operation"] == "broadcast" and row["block_bytes"] == 3073]
    if model:
        charts.append(Chart("Broadcast measured and by the model: figure 8", LENGTH, fitted(model), "fig8"))
    by("fig9_10", lambda row: f"broadcast to {row['members']}, simulated", "fig9-10",
       "Broadcast to many members: figures 9 and 10",
       lambda rows: columns(rows, {
           "simulated": "blocks of 3073 B", "model": "by the model", "send_receive": "send/receive",
           "send_receive_by_model": "send/receive by model",
       }, {"by the model": "blocks of 3073 B", "send/receive by model": "send/receive"}))
    by("fig11", lambda row: f"allreduce of {row['members']}, {row['source']}", "fig11", "Allreduce by degree: figure 11",
       lambda rows: columns(rows, {f"degree_{degree}": f"degree {degree}" for degree in (1, 3, 7, 15)}))
    by("fig12", lambda row: f"allreduce of 16, {row['source']}", "fig12", "Allreduce against send/receive: figure 12",
       lambda rows: columns(
           rows, {"send_receive": "send/receive", "degree_1": "degree 1", "best": "best degree"}, {"send/receive": ""}))
    by("fig13_14", lambda row: f"allreduce of {row['members']}, simulated", "fig13-14",
       "Allreduce of many members: figures 13 and 14",
       lambda rows: columns(rows, {
           "send_receive": "send/receive", "simulated": "best degree", "best_case": "model, best case",
           "worst_case": "model, worst case",
       }, {"model, best case": "", "model, worst case": ""}))
    return charts


def peers(document: Document, operation: str, column: str, name: str) -> Chart:
    """Over TCP; of each program the fastest settings for each length."""
    best: dict[tuple[int, str, int], Row] = {}
    for row in document["all"]:
        key = (row["members"], row["program"], row["bytes"])
        if row["operation"] == operation and row["network"] == "tcp" and (key not in best or row[column] < best[key][column]):
            best[key] = row
    panels = grouped(
        best.values(), lambda row: f"{name}, {row['members']} members", lambda row: row["program"], lambda row: row["bytes"],
        lambda row: row[column] / 1e6, Axis("time", 10, "seconds"))
    return Chart(f"{name} over TCP against the length", Axis("length", 8, "bytes"), panels, operation)


def fitted(rows: list[Row]) -> list[Panel]:
    panels = []
    for source in dict.fromkeys(row["source"] for row in rows):
        lines = []
        for members in sorted({row["members"] for row in rows}):
            own = sorted((row for row in rows if (row["source"], row["members"]) == (source, members)), key=lambda row: row["bytes"])
            name = f"{members} members"
            lines += columns(own, {"time_us": name, "model_us": f"{members} by model"}, {f"{members} by model": name})
        panels.append(Panel(f"broadcast, {source}, and the fitted model", TIME, lines))
    return panels


def in_switch(document: Document) -> list[Chart]:
    """Figures 4 to 9 of the MC-RDMA paper, which differ in their columns."""
    rows: list[Row] = document["rows"]
    first = rows[0]
    def pattern(row: Row) -> str:
        return str(row["pattern"])
    if "request" in first:
        panels = [panel for title, column, unit in (
            ("Latency", "latency_us", "µs"), ("Sender's link", "sender_gbit_per_s", "Gbit/s"), ("Requests", "gbit_per_s", "Gbit/s"),
        ) for panel in grouped(rows, lambda row: title, pattern, lambda row: size(row["request"]), lambda row: row[column], Axis(unit, 10))]
        return [Chart("One client, three replicas", Axis("request", 8, "bytes"), panels)]
    if "phase" in first:
        if "rates" not in document:
            raise NotStored("rates")
        panels = grouped(
            document["rates"], lambda row: f"Notifications received: {row['rule']}", lambda row: row["flow"],
            lambda row: row["at_ms"], lambda row: row["gbit_per_s"], Axis("Gbit/s"))
        return [Chart("Flows that start one after another", Axis("ms"), panels)]
    if "tightened" in first:
        panels = grouped(
            rows, lambda row: f"Until the group has its new share; link before: {row['tightened']}", lambda row: row["rule"],
            lambda row: row["congested"], lambda row: row["reacted_us"], Axis("µs"))
        return [Chart("A new tightest link", Axis("congested members before", unit="count"), panels)]
    if "congested" in first:
        return [Chart("Congested members", Axis("congested members", unit="count"), notifications(rows))]
    if "lossy" in first:
        panels = [panel for lossy in dict.fromkeys(row["lossy"] for row in rows) for title, column, unit in (
            ("Throughput", "gbit_per_s", "Gbit/s"), ("99th percentile of the latency", "latency_99_us", "µs"),
        ) for panel in grouped(
            (row for row in rows if row["lossy"] == lossy), lambda row: f"{title}, lossy: {lossy}", pattern,
            lambda row: 1e4 / float(row["loss"][2:]) if row["loss"] != "0" else 0, lambda row: row[column], Axis(unit))]
        return [Chart("Lost packets", Axis("lost, of 10,000 packets"), panels)]
    if "read_us" in first:
        by_load = len({row["load"] for row in rows}) > 1
        panels = grouped(
            rows, lambda row: ", ".join((row["sizes"], row["dcqcn"], row["layout"], f"switches: {row['switches']}"))
            + (f", groups: {row['groups']}" if by_load else ""), pattern,
            lambda row: row["load" if by_load else "groups"], lambda row: row["read_us"], Axis("µs for a read"),
            lambda row: row["read_half_us"])
        return [Chart("Reads from a storage system", Axis("load") if by_load else Axis("groups of a store", unit="count"), panels)]
    panels = grouped(
        rows, lambda row: f"{row['dcqcn']}, {row['above']} Gbit/s above", pattern, lambda row: row["message_mb"],
        lambda row: row["iteration_ms"], Axis("ms for an iteration"), lambda row: row["iteration_half_ms"])
    return [Chart("Parameter servers", Axis("message, MB"), panels)]


def notifications(rows: list[Row]) -> list[Panel]:
    panels = []
    for rule in dict.fromkeys(row["rule"] for row in rows):
        own = [{**row, "bytes": row["congested"]} for row in rows if row["rule"] == rule]
        lines = columns(own, {
            "group_gbit_per_s": "group", "group_in_theory": "group, in theory", "flow_gbit_per_s": "other flows",
            "flow_in_theory": "others, in theory"}, scale=1)
        for line in lines[1::2]:
            line.style = "dotted"
        panels.append(Panel(f"Notifications received: {rule}", Axis("Gbit/s"), lines))
    return panels


FIGURES: dict[str, Callable[[Document], list[Chart]]] = {
    "shaped": shaped, "block-sizes": block_sizes, "small": small, "scale": scale, "store": store, "overlapping": overlapping,
    "modes": modes, "racks": racks, "push": push, "collectives": collectives, "in-switch": in_switch,
}
