"""Which columns of a benchmark's tables are drawn."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chart import Axis, Chart, Line, Panel, Point

Row = dict[str, Any]
Document = dict[str, Any]


class NotStored(Exception):
    """The document lacks the table of a picture."""


@dataclass(frozen=True)
class Y:
    """A column that is drawn; `panel` and `line` are formats of a row, dashed lines have the colour of `like`."""

    column: str
    axis: Axis
    panel: str
    line: str
    error: str = ""
    style: str = "solid"
    like: str = ""


@dataclass(frozen=True)
class Figure:
    """`has`: a column that tells it from other figures of the same benchmark; `name` is added to its file's."""

    title: str
    x: str
    axis: Axis
    ys: tuple[Y, ...]
    rows: str | Callable[[Document], list[Row]] = "rows"
    has: str = ""
    name: str = ""

    def chart(self, document: Document) -> Chart:
        if isinstance(self.rows, str) and self.rows not in document:
            raise NotStored(self.rows)
        rows: list[Row] = document[self.rows] if isinstance(self.rows, str) else self.rows(document)
        panels: dict[str, tuple[Axis, dict[str, Line]]] = {}
        for y in self.ys:
            for row in rows:
                if row[y.column] is not None:
                    lines = panels.setdefault(y.panel.format_map(row), (y.axis, {}))[1]
                    line = y.line.format_map(row)
                    drawn = lines.setdefault(line, Line(line, [], y.style, y.like.format_map(row)))
                    drawn.points.append(Point(number(row[self.x]), row[y.column], (y.error and row[y.error]) or 0))
        for _, lines in panels.values():
            for drawn in lines.values():
                drawn.points.sort(key=lambda point: point.x)
        return Chart(self.title, self.axis, [Panel(title, axis, list(lines.values())) for title, (axis, lines) in panels.items()], self.name)


def number(value: float | str) -> float:
    """Also of "16 KiB", of "4:1", and, of 10,000, of "1/1024"."""
    if isinstance(value, str):
        if value.startswith("1/"):
            return 1e4 / float(value[2:])
        amount, _, unit = value.replace(":1", " ").partition(" ")
        return float(amount) * 1024.0 ** ["", "B", "KiB", "MiB", "GiB", "TiB"].index(unit) / (1024 if unit else 1)
    return value


def best(rows: list[Row], column: str, *key: str) -> list[Row]:
    """Of the rows that agree in the key those with the least value."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        place = tuple(row[name] for name in key)
        if place not in found or row[column] < found[place][column]:
            found[place] = row
    return list(found.values())


def shaped(document: Document) -> Figure:
    """The rate of the mean time. All choices of the cost model are one line."""
    rows = [{**row, "algorithm": row["algorithm"].split(":")[0]} for row in document["rows"]]
    has_queues = len({row.get("queue_ms") for row in rows}) > 1
    rows = best(rows, "time_s", "algorithm", "length", "members", *(["queue_ms"] if has_queues else []))
    is_one = len({row["algorithm"] for row in rows}) == 1
    value, title = ("mbit_per_s", "Mbit/s") if len({row["mbit"] for row in rows}) == 1 else ("of_rate", SHARE.title)
    for row in rows:
        row["y"] = row[value] * row["time_s"] / row["mean_s"]
        row["error"] = row["y"] * (row["deviation_s"] or 0) / row["mean_s"]
    panel, line = ("{algorithm}", "{length}") if is_one else ("{length}", "{algorithm}")
    panel += ", queues of {queue_ms} ms" if has_queues else ""
    return Figure("Bandwidth against the number of members", "members", MEMBERS, (Y("y", Axis(title), panel, line, "error"),), lambda _: rows)


def overlapping(document: Document) -> list[Row]:
    def senders(row: Row) -> str:
        return "all send" if row["senders"] == row["members"] else "one sends" if row["senders"] == 1 else "half of them send"
    return [{**row, "who": senders(row), "error": row["of_a_link"] * (row["deviation_mbit"] or 0) / row["together_mbit"]}
            for row in document["rows"]]


def scale(document: Document) -> list[Row]:
    """With the bound: no schedule takes fewer steps than blocks - 1 + log2 of the members."""
    bounds = []
    for platform in dict.fromkeys(row["platform"] for row in document["rows"]):
        own = [row for row in document["rows"] if row["platform"] == platform]
        known = min((row for row in own if row["steps"]), key=lambda row: row["members"])
        blocks = round(known["limit"] * known["steps"])
        block_ms = known["time_ms"] * known["of_the_rate"] / blocks
        for members in sorted({row["members"] for row in own}):
            steps = blocks - 1 + math.ceil(math.log2(members))
            bounds.append({**own[0], "members": members, "fewest_ms": steps * block_ms, "time_ms": None, "algorithm": ""})
    rows = bounds + [{**row, "fewest_ms": None, "mpi_ms": None} for row in document["rows"]]
    for row in rows:
        row["network"] = f"Racks, oversubscribed {row['oversubscribed']}" if row["platform"] == "racks" else "Fat tree, full bisection"
        is_mpi = row["algorithm"].startswith("MPI")
        row["mpi_ms"], row["time_ms"] = (row["time_ms"], None) if is_mpi else (None, row["time_ms"])
    return rows


def storage(document: Document) -> Figure:
    by_load = len({row["load"] for row in document["rows"]}) > 1
    panel = "{sizes}, {dcqcn}, {layout}, switches: {switches}" + (", groups: {groups}" if by_load else "")
    axis = Axis("load") if by_load else Axis("groups of a store", unit="count")
    return Figure("Reads from a storage system", "load" if by_load else "groups", axis,
                  (Y("read_us", Axis("µs for a read"), panel, "{pattern}", "read_half_us"),))


def peers(operation: str, column: str, about: str) -> Figure:
    """Over TCP; of each program the fastest settings for each length."""
    def rows(document: Document) -> list[Row]:
        own = [row for row in document["all"] if row["operation"] == operation and row["network"] == "tcp"]
        return best(own, column, "members", "program", "bytes")
    return Figure(f"{about} over TCP against the length", "bytes", Axis("length", 8, "bytes"),
                  (Y(column, Axis("time", 10, "us"), about + ", {members} members", "{program}"),), rows, "all", operation)


SHARE, GBIT, US, TIME = Axis("share of the links' rate"), Axis("Gbit/s"), Axis("µs"), Axis("time", unit="us")
MEMBERS, LENGTH = Axis("members", unit="count"), Axis("length", 4, "bytes")
TO_16, FITTED, RULE = "broadcast to 16, {source}", "broadcast, {source}, and the fitted model", "Notifications received: {rule}"
TO_MANY, OF_16, OF_MANY = "broadcast to {members}, simulated", "allreduce of 16, {source}", "allreduce of {members}, simulated"

SMALL = Figure("Messages per second against the number of members", "members", Axis("members", 2), (
    Y("messages_per_s", Axis("messages/s", 10), "{network}, {length}", "{path}"),))

# Of each benchmark; where it has several, those whose table or column the document has.
FIGURES: dict[str, tuple[Figure | Callable[[Document], Figure], ...]] = {
    "shaped": (shaped,),
    "block-sizes": (Figure("Bandwidth against block size", "block", Axis("block", 4, "bytes"), (
        Y("mbit_per_s", Axis("Mbit/s"), "Bandwidth by length of the message", "{length}"),)),),
    **dict.fromkeys(("small", "small-virtual"), (SMALL,)),
    "scale": (Figure("Time to the last member against the number of members", "members", Axis("members", 2), tuple(
        Y(column, Axis("time", 10, "ms"), "{network}", line, style=style) for column, line, style in (
            ("fewest_ms", "fewest steps", "dotted"), ("time_ms", "{algorithm}", "solid"), ("mpi_ms", "{algorithm}", "dashed"))), scale),),
    "store": (Figure("Distribution of latencies", "latency_ms", Axis("latency", 10, "ms"), (
        Y("share", Axis("share of objects with at most this latency"), "{in_flight} in flight", "{algorithm}"),), "latencies"),),
    "overlapping": (Figure("Bandwidth of all groups together against their size", "members", Axis("members of every group", unit="count"), (
        Y("of_a_link", Axis("of a link's rate, all groups together"), "{network}, {length}", "{who}", "error"),), overlapping),),
    "modes": (Figure("Bandwidth and processor time by completion mode", "members", MEMBERS, (
        Y("MB_per_s", Axis("MB/s"), "MB/s, {length}", "{completion}"),
        Y("cpu_share_per_member", Axis("cores"), "cores per member, {length}", "{completion}"))),),
    "racks": (Figure("Bandwidth against oversubscription", "oversubscribed", Axis("times that uplinks are oversubscribed", unit="count"), (
        Y("of_rate", SHARE, "Ranks {layout} over racks", "{algorithm}"),),
        lambda document: [row for row in document["rows"] if row["oversubscribed"] != "full bisection"]),),
    "push": (Figure("Bandwidth of a push against the rate of the links", "mbit", Axis("Mbit/s", unit="count"), (
        Y("of_rate", SHARE, "MTU {mtu}", "{way}"),)),),
    "collectives": (
        peers("broadcast", "leaf_us", "broadcast, deepest leaf"),
        peers("allreduce", "average_us", "allreduce, average"),
        Figure("Broadcast by block size: figures 6 and 7", "bytes", LENGTH, (
            *(Y(f"{size}_B", TIME, TO_16, f"blocks of {size} B") for size in (1025, 2049, 3073, 4097)),
            Y("send_receive", TIME, TO_16, "send/receive", style="dashed")), "fig6_7", "fig6_7", "fig6-7"),
        Figure("Broadcast measured and by the model: figure 8", "bytes", LENGTH, (
            Y("time_us", TIME, FITTED, "{members} members"),
            Y("model_us", TIME, FITTED, "{members} by model", style="dashed", like="{members} members")), "fig8", "fig8", "fig8"),
        Figure("Broadcast to many members: figures 9 and 10", "bytes", LENGTH, (
            Y("simulated", TIME, TO_MANY, "blocks of 3073 B"),
            Y("model", TIME, TO_MANY, "by the model", style="dashed", like="blocks of 3073 B"),
            Y("send_receive", TIME, TO_MANY, "send/receive"),
            Y("send_receive_by_model", TIME, TO_MANY, "send/receive by model", style="dashed", like="send/receive")),
            "fig9_10", "fig9_10", "fig9-10"),
        Figure("Allreduce by degree: figure 11", "bytes", LENGTH, tuple(
            Y(f"degree_{degree}", TIME, "allreduce of {members}, {source}", f"degree {degree}") for degree in (1, 3, 7, 15)),
            "fig11", "fig11", "fig11"),
        Figure("Allreduce against send/receive: figure 12", "bytes", LENGTH, (
            Y("send_receive", TIME, OF_16, "send/receive", style="dashed"), Y("degree_1", TIME, OF_16, "degree 1"),
            Y("best", TIME, OF_16, "best degree")), "fig12", "fig12", "fig12"),
        Figure("Allreduce of many members: figures 13 and 14", "bytes", LENGTH, (
            Y("send_receive", TIME, OF_MANY, "send/receive"), Y("simulated", TIME, OF_MANY, "best degree"),
            Y("best_case", TIME, OF_MANY, "model, best case", style="dashed"),
            Y("worst_case", TIME, OF_MANY, "model, worst case", style="dashed")), "fig13_14", "fig13_14", "fig13-14"),
    ),
    # Figures 4 to 9 of the MC-RDMA paper.
    "in-switch": (
        Figure("One client, three replicas", "request", Axis("request", 8, "bytes"), tuple(
            Y(column, Axis(unit, 10), title, "{pattern}") for column, unit, title in (
                ("latency_us", "µs", "Latency"), ("sender_gbit_per_s", "Gbit/s", "Sender's link"), ("gbit_per_s", "Gbit/s", "Requests"))),
            has="request"),
        Figure("Flows that start one after another", "at_ms", Axis("ms"), (Y("gbit_per_s", GBIT, RULE, "{flow}"),), "rates", "phase"),
        Figure("Congested members", "congested", Axis("congested members", unit="count"), (
            Y("group_gbit_per_s", GBIT, RULE, "group"), Y("group_in_theory", GBIT, RULE, "group, in theory", style="dotted"),
            Y("flow_gbit_per_s", GBIT, RULE, "other flows"), Y("flow_in_theory", GBIT, RULE, "others, in theory", style="dotted")),
            has="group_in_theory"),
        Figure("A new tightest link", "congested", Axis("congested members before", unit="count"), (
            Y("reacted_us", US, "Until the group has its new share; link before: {tightened}", "{rule}"),), has="tightened"),
        Figure("Lost packets", "loss", Axis("lost, of 10,000 packets"), (
            Y("gbit_per_s", GBIT, "Throughput, lossy: {lossy}", "{pattern}"),
            Y("latency_99_us", US, "99th percentile of the latency, lossy: {lossy}", "{pattern}")), has="lossy"),
        Figure("Parameter servers", "message_mb", Axis("message, MB"), (
            Y("iteration_ms", Axis("ms for an iteration"), "{dcqcn}, {above} Gbit/s above", "{pattern}", "iteration_half_ms"),),
            has="message_mb"),
    ),
}


def charts(document: Document) -> list[Chart]:
    """All pictures of a document; none of a benchmark that has none."""
    first = document["rows"][0] if document.get("rows") else {}
    if document.get("benchmark") == "in-switch" and "read_us" in first:
        return [storage(document).chart(document)]
    figures = [one(document) if callable(one) else one for one in FIGURES.get(document.get("benchmark", ""), ())]
    drawn = [figure.chart(document) for figure in figures if not figure.has or figure.has in first or document.get(figure.has)]
    return [chart for chart in drawn if chart.panels]
