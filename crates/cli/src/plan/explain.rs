//! `rdmc plan --explain`: the choice of `auto`, and the cost model's prediction for the alternatives.

use std::io::{self, Write};

use plan::{
    choice::{Choice, ChoiceRequest},
    costs::Costs,
    size,
};
use rdmc::Fabric;
use schedule::{Algorithm, lower_bound_steps};
use serde_json::{Value, json};

use super::{args::Args, message::rack_of_each};
use crate::{failure::Failure, json, output};

/// Prints the comparison.
pub fn run(args: &Args) -> Result<(), Failure> {
    let members = args.members()?;
    let racks = args.racks.as_ref().map(|sizes| rack_of_each(sizes, members)).transpose()?;
    let racks = racks.as_deref().unwrap_or_default();
    let lacking = args.algorithm.filter(|algorithm| algorithm.needs_racks() && racks.is_empty());
    if let Some(algorithm) = lacking {
        return Err(Failure::Usage(format!("{algorithm} needs racks; add --racks")));
    }
    let request = ChoiceRequest {
        members,
        racks,
        message_bytes: args.bytes.unwrap_or(0),
        algorithm: args.algorithm,
        block_bytes: args.block_size,
    };
    let mut costs = match args.rate {
        None if args.local => Fabric::Tcp.costs_of_one_machine(members, Fabric::this_machine()),
        rate => Costs { burst_bytes: args.burst, ..Fabric::Tcp.costs_between_hosts(rate) },
    };
    if let Some(times) = args.oversubscription {
        costs.oversubscription = times;
    }
    let explanation = Explanation { request, costs };
    output::print(
        |out| if args.json { explanation.write_json(out) } else { explanation.write(out) },
    )
}

struct Explanation<'a> {
    request: ChoiceRequest<'a>,
    costs: Costs,
}

impl Explanation<'_> {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { request, costs } = self;
        let best = request.choose(costs);
        writeln!(
            out,
            "{} to {} members, links of {}: {}, blocks of {}\n",
            size::show(request.message_bytes),
            request.members,
            size::show_rate((costs.rate_bytes_per_second * 8.0) as u64),
            best.algorithm,
            size::show(best.block_bytes),
        )?;
        self.write_table(out, "algorithms, each with its best block", &request.compare(costs))?;
        let blocks = request.compare_blocks(best.algorithm, costs);
        if blocks.len() > 1 {
            writeln!(out)?;
            self.write_table(out, &format!("block sizes of {}", best.algorithm), &blocks)?;
        }
        writeln!(
            out,
            "\ntime = (steps + fill) * (max(block / rate, {:.0} us) + {:.0} us) + hops * {:.0} us{}; one copy alone takes {}.\n\
             No schedule has fewer steps than the binomial pipeline. Smaller blocks mean more steps, each\n\
             with its fixed cost; larger ones take longer to fill the pipeline.",
            costs.busy_seconds * 1e6,
            costs.gap_seconds * 1e6,
            costs.latency_seconds * 1e6,
            if costs.burst_bytes > 0 { " - the time that bursts save" } else { "" },
            show_seconds(self.one_copy_seconds()),
        )?;
        if !request.racks.is_empty() {
            writeln!(
                out,
                "Racks: blocks take longer where they cross racks, whose uplinks carry 1/{} of their hosts' rate.",
                costs.oversubscription
            )?;
        }
        if best.algorithm == Algorithm::InSwitch {
            writeln!(
                out,
                "Steps of in-switch are block times on the root's link; switches copy the blocks."
            )?;
        }
        Ok(())
    }

    fn write_table(&self, out: &mut impl Write, title: &str, choices: &[Choice]) -> io::Result<()> {
        writeln!(
            out,
            "{title:<38} {:>8} {:>10} {:>10} {:>11} {:>8}",
            "block", "blocks", "steps", "time", "of rate"
        )?;
        for choice in choices {
            writeln!(
                out,
                "  {:<36} {:>8} {:>10} {:>10} {:>11} {:>7.1}%",
                choice.algorithm.name(),
                size::show(choice.block_bytes).replace(' ', ""),
                choice.blocks,
                choice.steps,
                show_seconds(choice.time.as_secs_f64()),
                self.of_rate(choice) * 100.0,
            )?;
        }
        Ok(())
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { request, costs } = self;
        let best = request.choose(costs);
        let all = |choices: Vec<Choice>| -> Vec<Value> {
            choices.iter().map(|choice| self.to_json(choice)).collect()
        };
        let document = json!({
            "members": request.members,
            "bytes": request.message_bytes,
            "rate_bits_per_second": costs.rate_bytes_per_second * 8.0,
            "busy_seconds": costs.busy_seconds,
            "gap_seconds": costs.gap_seconds,
            "latency_seconds": costs.latency_seconds,
            "oversubscription": costs.oversubscription,
            "burst_bytes": costs.burst_bytes,
            "choice": self.to_json(&best),
            "algorithms": all(request.compare(costs)),
            "blocks": all(request.compare_blocks(best.algorithm, costs)),
        });
        json::write_pretty(out, &document)
    }

    fn to_json(&self, choice: &Choice) -> Value {
        json!({
            "algorithm": choice.algorithm.name(),
            "block_bytes": choice.block_bytes,
            "blocks": choice.blocks,
            "steps": choice.steps,
            "lower_bound_steps": lower_bound_steps(self.request.members, choice.blocks),
            "seconds": choice.time.as_secs_f64(),
            "of_rate": self.of_rate(choice),
        })
    }

    fn one_copy_seconds(&self) -> f64 {
        self.request.message_bytes as f64 / self.costs.rate_bytes_per_second
    }

    fn of_rate(&self, choice: &Choice) -> f64 {
        let seconds = choice.time.as_secs_f64();
        if seconds > 0.0 { self.one_copy_seconds() / seconds } else { 1.0 }
    }
}

fn show_seconds(seconds: f64) -> String {
    if seconds >= 1.0 { format!("{seconds:.3} s") } else { format!("{:.3} ms", seconds * 1e3) }
}
