"""Derives the tables of docs/results/collectives.md from what `rdmc-bench collectives --json` measured and simulated.

Usage: collectives.py [--json | --markdown] < ROWS

Measured or simulated: `rows` (beside peers; here `all`), `times` (the paper's figures), `layers`. Computed by
crates/collective::model with the paper's parameters: `model` and the column `model_us` of `times`. Everything else is
derived here: times by length, ratios, fastest settings, gains, the fitted parameters and the model's errors.
"""

import itertools
import json
import sys

# The paper's cluster, its best block and the blocks that it compares, with the byte of the flag.
MEMBERS, BLOCK, BLOCKS = 16, 3073, (1025, 2049, 3073, 4097)
SOURCES = ("measured", "simulated")
# What rdmc is not compared with as with a peer.
OWN = ("rdmc", "send/receive", "bare memory")
# A figure of an operation, and whether it is compared: averages of broadcasts depend on who leaves a barrier first.
VIEWS = (
    ("broadcast, average", "broadcast", "average_us", False),
    ("broadcast, deepest leaf", "broadcast", "leaf_us", True),
    ("allreduce, average", "allreduce", "average_us", True),
)
TITLES = {
    "rows": "",
    "ratios": "rdmc's time divided by that of the fastest peer over the same network, with its fastest settings:",
    "fastest_settings": "The fastest settings, of the broadcast / of the allreduce:",
    "missing": "Programs without results, or without their later turns:",
    "all": "All times beside peers:",
    "parameters": "Parameters of the model, ns; operations show the sums Tm + Td and Ts + Tn, which are split as in the paper:",
    "model_errors": "Error of the fitted model, relative to the times (negative: it is too fast):",
    "model_points": "The fitted model at each point:",
    "fig6_7": "Figures 6 and 7: broadcast to 16 until the deepest leaf has it, us, by block size (the paper's, with its flag):",
    "fig8": "Figure 8: broadcast and the fitted model, us:",
    "fig9_10": "Figures 9 and 10: broadcast to many, us, simulated and by the model with the paper's parameters:",
    "fig11": "Figure 11: allreduce with each degree, us:",
    "fig12": "Figure 12: allreduce of 16, us:",
    "fig13_14": "Figures 13 and 14: allreduce of many, us, simulated and by the model with the paper's parameters:",
    "layers": "Where the time of an allreduce of 4 bytes between two members over TCP goes, us and counts for each:",
    "layers_over_shared_memory": "Where the time of an allreduce of 4 bytes between two processes over shared memory goes, us for each:",
    "layers_over_fabrics": "Where the time of an allreduce of 4 bytes between two processes over a fabric goes, us for each:",
}


def divided(one, other):
    return None if one is None or other is None else one / other


def gain(us, other_us):
    """The time saved."""
    ratio = divided(us, other_us)
    return None if ratio is None else 1 - ratio


def mean(values):
    return sum(values) / len(values)


def unique(values):
    return list(dict.fromkeys(values))


def column(length):
    """The name of a length's column, such as 4_B or 16_MiB."""
    power = min((length.bit_length() - 1) // 10, 2)
    return f"{length >> 10 * power}_{('B', 'KiB', 'MiB')[power]}"


# Beside peers.


def beside(rows, missing):
    """Tables of times by length, of ratios and of fastest settings."""
    of_program = ("members", "network", "program")
    settings = {}
    for row in rows + missing:
        settings.setdefault(tuple(row[name] for name in of_program), {})[row["settings"]] = None
    measured = {(*(row[name] for name in of_program), row["settings"], row["operation"], row["bytes"]): row for row in rows}
    lengths = sorted({row["bytes"] for row in rows})
    programs = unique(tuple(row[name] for name in of_program) for row in rows)
    tables = {"rows": [], "ratios": [], "fastest_settings": []}
    for (name, operation, time, is_compared), members in itertools.product(VIEWS, unique(program[0] for program in programs)):
        of_group = [program for program in programs if program[0] == members]

        def timed(program, length):
            """The times of all settings, the fastest first."""
            found = ((measured.get((*program, choice, operation, length)), choice) for choice in settings[program])
            return sorted((row[time], choice) for row, choice in found if row)

        def default(program, length):
            choices = list(settings[program])
            row = measured.get((*program, choices[0] if len(choices) == 1 else "default", operation, length))
            return row and row[time]

        def best(program, length):
            return next((us for us, _ in timed(program, length)), None)

        def ratio(program, length):
            peers = [it for it in of_group if it[1] == program[1] and it[2] not in OWN]
            fastest = min((us for us in (best(peer, length) for peer in peers) if us is not None), default=None)
            return divided(default(program, length), fastest)

        def add(table, program, choice, value):
            head = {"operation": name, **dict(zip(of_program, program)), "settings": choice}
            tables[table].append({**head, **{column(length): value(program, length) for length in lengths}})

        for program in of_group:
            add("rows", program, "default", default)
            if len(settings[program]) > 1:
                add("rows", program, "best", best)
                if is_compared:
                    fastest = lambda program, length: next((choice for _, choice in timed(program, length)), None)
                    add("fastest_settings", program, "best", fastest)
            if is_compared and program[2] == "rdmc" and any(ratio(program, length) is not None for length in lengths):
                add("ratios", program, "default", ratio)
    return tables


# The model of the paper as a sum of unknowns: Tm + Td, Ts + Tn, Tt, Tc, Ta. The first two are sums because operations
# cannot tell their terms apart. crates/collective::model derives it; `checked` compares both.

UNKNOWNS = 5


def coefficients(row, values):
    """What the model multiplies each unknown by; of an allreduce in the worst case, whose maximum depends on the values."""
    length, block = row["bytes"], row["block_bytes"] - 1
    blocks = max(1, -(-length // block))
    parts = [row["rounds"] * part for part in (1, 2, length, 2 * min(length, block), blocks)]
    if row["operation"] == "allreduce":
        parts[3] += 2 * length
        for senders in row["senders"]:
            parts[0] += 1
            parts[1] += 2
            parts[2] += length
            if values[2] * length > values[1]:
                parts[2] += (senders - 1) * length
            else:
                parts[1] += senders - 1
    return parts


def product(row, values):
    return sum(a * b for a, b in zip(row, values))


def model_us(row, values):
    return product(coefficients(row, values), values)


def checked(samples, paper):
    for row in samples:
        if abs(model_us(row, paper) / row["model_us"] - 1) > 1e-3:
            sys.exit(f"collectives.py: not the model of crates/collective: {model_us(row, paper)} us for {row}")


def solve(rows, chosen):
    """Least squares of products - 1 with these unknowns alone; None if they cannot be told apart."""
    matrix = [[sum(row[a] * row[b] for row in rows) for b in chosen] + [sum(row[a] for row in rows)] for a in chosen]
    count, scale = len(chosen), [row[index] for index, row in enumerate(matrix)]
    for index in range(count):
        pivot = max(range(index, count), key=lambda row: abs(matrix[row][index]))
        if abs(matrix[pivot][index]) <= 1e-9 * scale[index]:
            return None
        matrix[index], matrix[pivot] = matrix[pivot], matrix[index]
        for other in range(count):
            if other != index:
                factor = matrix[other][index] / matrix[index][index]
                matrix[other] = [a - factor * b for a, b in zip(matrix[other], matrix[index])]
    values = [0.0] * UNKNOWNS
    for index, unknown in enumerate(chosen):
        values[unknown] = matrix[index][count] / matrix[index][index]
    return values


def least_squares(rows):
    """The best solution without negative values, among all choices of unknowns that are not 0."""
    choices = (chosen for count in range(1, UNKNOWNS + 1) for chosen in itertools.combinations(range(UNKNOWNS), count))
    solved = (solve(rows, chosen) for chosen in choices)
    possible = [values for values in solved if values and min(values) >= 0]
    return min(possible, key=lambda values: sum((product(row, values) - 1) ** 2 for row in rows))


def fit(samples, paper):
    """The values with the least squares of relative errors. The model has maxima: solved again with the last values."""
    values = paper
    for _ in range(6):
        values = least_squares([[part / row["time_us"] for part in coefficients(row, values)] for row in samples])
    return values


# The paper's figures.


def figures(times, model, paper_us):
    paper = [paper_us["Tm"] + paper_us["Td"], paper_us["Ts"] + paper_us["Tn"], *(paper_us[it] for it in ("Tt", "Tc", "Ta"))]
    samples = [row for row in times if row["program"] == "team"]
    checked(samples, paper)
    of = {source: [row for row in samples if row["source"] == source] for source in SOURCES}
    fitted = {source: fit([row for row in of[source] if row["members"] <= MEMBERS], paper) for source in SOURCES}
    return {
        "parameters": parameters(paper_us, fitted),
        **errors(of, fitted),
        **broadcasts(times, model, fitted),
        **reductions(times, model),
    }


def parameters(paper_us, fitted):
    def ns(values):
        """By name; the sums are split as in the paper."""
        software, adapter = paper_us["Tm"] + paper_us["Td"], paper_us["Ts"] + paper_us["Tn"]
        parts = {"Tt, a byte": values[2], "Tc, a byte": values[3], "Ts + Tn": values[1]}
        parts |= {name: values[1] * paper_us[name] / adapter for name in ("Ts", "Tn")}
        parts |= {"Tm + Td": values[0]}
        parts |= {name: values[0] * paper_us[name] / software for name in ("Td", "Tm")}
        return {name: round(us * 1e3, 3) for name, us in (parts | {"Ta, a block": values[4]}).items()}

    paper = [paper_us["Tm"] + paper_us["Td"], paper_us["Ts"] + paper_us["Tn"], *(paper_us[it] for it in ("Tt", "Tc", "Ta"))]
    columns = {"paper": ns(paper), "fitted_here": ns(fitted["measured"]), "fitted_to_the_simulation": ns(fitted["simulated"])}
    return [{"parameter": name, **{key: of[name] for key, of in columns.items()}} for name in columns["paper"]]


def errors(of, fitted):
    points, summary = [], []
    for source, samples in of.items():
        for row in samples:
            us = model_us(row, fitted[source])
            kept = ("source", "operation", "members", "degree", "block_bytes", "bytes", "time_us")
            point = {name: row[name] for name in kept} | {"model_us": us, "error": us / row["time_us"] - 1}
            points.append(point | {"degree": row["degree"] if row["operation"] == "allreduce" else None})
        groups = sorted({(row["operation"] == "allreduce", row["members"]) for row in samples})
        for is_allreduce, members in groups:
            operation = "allreduce" if is_allreduce else "broadcast"
            key = (source, operation, members)
            found = [it["error"] for it in points if (it["source"], it["operation"], it["members"]) == key]
            sizes = [abs(error) for error in found]
            head = {"source": source, "operation": operation, "members": members, "points": len(found)}
            measures = {"mean_error": mean(found), "mean_size": mean(sizes), "greatest_size": max(sizes)}
            summary.append({**head, **measures, "fitted": "yes" if members <= MEMBERS else "predicted"})
    return {"model_errors": summary, "model_points": points}


def broadcasts(times, model, fitted):
    """Figures 6 to 10."""
    teams = {
        (row["source"], row["members"], row["block_bytes"], row["bytes"]): row
        for row in times
        if row["operation"] == "broadcast" and row["program"] == "team"
    }
    two_sided = two_sided_us(times, "broadcast")
    lengths = unique(row["bytes"] for row in times)
    blocks, fig8, many = [], [], []
    for source, length in itertools.product(SOURCES, lengths):
        by_block = {block: teams[source, MEMBERS, block, length]["time_us"] for block in BLOCKS}
        other = two_sided[source, MEMBERS, length]
        row = {"source": source, "bytes": length, **{f"{block}_B": us for block, us in by_block.items()}}
        blocks.append({**row, "send_receive": other, "gain_with_3073_B": gain(by_block[BLOCK], other)})
    for source, members, length in itertools.product(SOURCES, (2, 4, 8, MEMBERS), lengths):
        row = teams[source, members, BLOCK, length]
        head = {"source": source, "members": members, "bytes": length}
        fig8.append({**head, "time_us": row["time_us"], "model_us": model_us(row, fitted[source])})
    for row in (row for row in model if row["members"] > MEMBERS):
        members, length, by_model = row["members"], row["bytes"], row["broadcast_us"]
        us, other = teams["simulated", members, BLOCK, length]["time_us"], two_sided["simulated", members, length]
        # As in the paper: log2 of the members times send/receive of two.
        other_by_model = row["rounds"] * two_sided["simulated", 2, length]
        many.append({
            "members": members, "bytes": length, "simulated": us, "model": by_model, "model_error": by_model / us - 1,
            "send_receive": other, "send_receive_by_model": other_by_model,
            "gain": gain(us, other), "gain_by_model": gain(by_model, other_by_model),
        })  # fmt: skip
    return {"fig6_7": blocks, "fig8": fig8, "fig9_10": many}


def two_sided_us(times, operation):
    of = (row for row in times if row["operation"] == operation and row["program"] == "send/receive")
    return {(row["source"], row["members"], row["bytes"]): row["time_us"] for row in of}


def reductions(times, model):
    """Figures 11 to 14."""
    reduced = {}
    for row in times:
        if row["operation"] == "allreduce" and row["program"] == "team":
            key = (row["source"], row["members"], row["bytes"])
            reduced.setdefault(key, {})[row["degree"]] = row["time_us"]
    two_sided = two_sided_us(times, "allreduce")
    by_degree, against, many = [], [], []
    for source, of_model in itertools.product(SOURCES, model):
        members, length = of_model["members"], of_model["bytes"]
        if members > MEMBERS:
            continue
        degrees = reduced[source, members, length]
        best = min(sorted(degrees), key=degrees.get)
        row = {"source": source, "members": members, "bytes": length}
        row |= {f"degree_{degree}": degrees.get(degree) for degree in (1, 3, 7, 15)}
        by_degree.append({**row, "best": best, "best_by_model": of_model["degree"]})
        if members == MEMBERS:
            one, us, other = degrees[1], degrees[best], two_sided[source, members, length]
            against.append({
                "source": source, "bytes": length, "send_receive": other, "degree_1": one, "best": us, "best_degree": best,
                "gain_of_degree_1": gain(one, other), "gain_of_best": gain(us, other), "best_against_degree_1": gain(us, one),
            })  # fmt: skip
    for row in (row for row in model if row["members"] > MEMBERS):
        members, length = row["members"], row["bytes"]
        degrees = reduced["simulated", members, length]
        best = min(sorted(degrees), key=degrees.get)
        other, other_by_model = two_sided["simulated", members, length], row["rounds"] * two_sided["simulated", 2, length]
        many.append({
            "members": members, "bytes": length, "simulated": degrees[best], "degree": best,
            "best_case": row["best_us"], "worst_case": row["worst_us"], "degree_by_model": row["degree"],
            "send_receive": other, "send_receive_by_model": other_by_model, "gain": gain(degrees[best], other),
            "gain_in_the_best_case": gain(row["best_us"], other_by_model),
            "gain_in_the_worst_case": gain(row["worst_us"], other_by_model),
        })  # fmt: skip
    return {"fig11": by_degree, "fig12": against, "fig13_14": many}


# Output.


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def shown(value):
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def printed(report, is_markdown):
    machine = report["machine"]
    print(f"{report['benchmark']}: {report['what']}")
    print(f"{machine['cores']} cores, {machine['cpu']}, Linux {machine['kernel']}")
    for name, title in TITLES.items():
        rows = report.get(name)
        # All times, and the model at each point, are for programs.
        if not rows or name in ("all", "model_points"):
            continue
        print(f"\n{title}\n" if title else "")
        names = list(rows[0])
        lines = [[name.replace("_", " ") for name in names]] + [[shown(row[name]) for name in names] for row in rows]
        is_text = [any(isinstance(row[name], str) for row in rows) for name in names]
        if is_markdown:
            lines = [[text.replace("|", "\\|") for text in line] for line in lines]
            lines.insert(1, ["---" if text else "--:" for text in is_text])
            print("\n".join(f"| {' | '.join(line)} |" for line in lines))
            continue
        widths = [max(len(line[index]) for line in lines) for index in range(len(names))]
        for line in lines:
            cells = (t.ljust(w) if left else t.rjust(w) for t, w, left in zip(line, widths, is_text))
            print("  ".join(cells).rstrip())
    for note in report["notes"]:
        print(f"- {note}" if is_markdown else f"\n{note}")


def main():
    text = sys.stdin.read()
    if not text:
        # What measures has said why.
        sys.exit(1)
    raw = json.loads(text)
    report = {name: raw[name] for name in ("benchmark", "what", "machine", "notes")}
    missing = raw.get("missing", [])
    report |= beside(raw["rows"], missing)
    if missing:
        report["missing"] = missing
    if raw["rows"]:
        report["all"] = raw["rows"]
    if "times" in raw:
        report |= figures(raw["times"], raw["model"], {row["parameter"]: row["us"] for row in raw["paper"]})
    report |= {name: raw[name] for name in ("layers", "layers_over_shared_memory", "layers_over_fabrics") if name in raw}
    # A table without rows is left out, but for the first.
    report = rounded({name: value for name, value in report.items() if value or name == "rows"})
    if "--json" in sys.argv[1:]:
        print(json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False))
    else:
        printed(report, "--markdown" in sys.argv[1:])


main()
