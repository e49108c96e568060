//! Topology files: one `[[switch]]` table for each switch (docs/internals/in-switch.md).

use std::{collections::BTreeMap, ops::Range};

use mcrdma::plan::{Device, Node, Topology};
use serde::Deserialize;
use toml::Spanned;

use super::source::NODES_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    switch: Vec<Switch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    name: Name,
    copies: bool,
    #[serde(default)]
    hosts: Vec<Name>,
    /// Other switches. Links are bidirectional; one end suffices.
    #[serde(default)]
    links: Vec<Name>,
}

type Name = Spanned<String>;

/// Parses a topology. Errors name the line and the remedy.
pub fn parse(text: &str) -> Result<Topology, String> {
    let document: Document = toml::from_str(text).map_err(|error| {
        let wrong = error.message().trim_end().replace('\n', "; ");
        error.span().map_or_else(|| wrong.clone(), |span| at(text, span, &wrong))
    })?;
    Reader { text, topology: Topology::new(), known: BTreeMap::new() }.read(&document)
}

fn at(text: &str, span: Range<usize>, wrong: &str) -> String {
    format!("line {}: {wrong}", line(text, span))
}

fn line(text: &str, span: Range<usize>) -> usize {
    let before = text.get(..span.start).unwrap_or(text);
    before.matches('\n').count() + 1
}

struct Reader<'a> {
    text: &'a str,
    topology: Topology,
    /// Nodes by name, with the line of the first occurrence.
    known: BTreeMap<&'a str, (Node, usize)>,
}

impl<'a> Reader<'a> {
    fn read(mut self, document: &'a Document) -> Result<Topology, String> {
        let mut switches = Vec::new();
        for switch in &document.switch {
            let device = if switch.copies { Device::Copies } else { Device::Plain };
            switches.push((self.add_switch(&switch.name, device)?, switch));
        }
        for (node, switch) in &switches {
            self.add_hosts(*node, &switch.hosts)?;
        }
        for (node, switch) in &switches {
            self.add_links(*node, &switch.links)?;
        }
        if switches.is_empty() {
            return Err("there are no switches; add a [[switch]] with name, copies, hosts and links for each".into());
        }
        if self.topology.len() == switches.len() {
            return Err(
                "there are no hosts; add them to their switches, such as hosts = [\"a1\", \"a2\"]"
                    .into(),
            );
        }
        Ok(self.topology)
    }

    fn add_switch(&mut self, name: &'a Name, device: Device) -> Result<Node, String> {
        match self.find(name) {
            Some((_, _, line)) => {
                let remedy =
                    format!("is on line {line} already; give each switch a name of its own");
                Err(self.wrong(name, &remedy))
            }
            None => self.add(name, device),
        }
    }

    fn add_hosts(&mut self, switch: Node, hosts: &'a [Name]) -> Result<(), String> {
        for (index, name) in hosts.iter().enumerate() {
            let host = match self.find(name) {
                Some((_, Device::Copies | Device::Plain, line)) => {
                    let remedy =
                        format!("is a switch (line {line}); put it into links, or rename the host");
                    return Err(self.wrong(name, &remedy));
                }
                Some(_) if is_in(&hosts[..index], name) => return Err(self.twice(name)),
                // Another link of the same host.
                Some((host, ..)) => host,
                None => self.add(name, Device::Host)?,
            };
            self.topology.link(switch, host);
        }
        Ok(())
    }

    fn add_links(&mut self, switch: Node, links: &'a [Name]) -> Result<(), String> {
        for (index, name) in links.iter().enumerate() {
            let remedy = match self.find(name) {
                None => "is not a switch; add a [[switch]] of this name, or correct it".to_owned(),
                Some((_, Device::Host, line)) => {
                    format!("is a host (line {line}); put it into hosts")
                }
                Some((other, ..)) if other == switch => {
                    "is linked to itself; name the switch at the other end".to_owned()
                }
                Some(_) if is_in(&links[..index], name) => return Err(self.twice(name)),
                Some((other, ..)) => {
                    self.topology.link(switch, other);
                    continue;
                }
            };
            return Err(self.wrong(name, &remedy));
        }
        Ok(())
    }

    fn find(&self, name: &Name) -> Option<(Node, Device, usize)> {
        let &(node, line) = self.known.get(name.get_ref().as_str())?;
        Some((node, self.topology.device(node), line))
    }

    fn add(&mut self, name: &'a Name, device: Device) -> Result<Node, String> {
        let is_invalid = |c: char| c == ',' || c.is_whitespace() || c.is_control();
        if name.get_ref().is_empty() || name.get_ref().contains(is_invalid) {
            return Err(self.wrong(
                name,
                "is not a name; use at least one character, and no spaces or commas",
            ));
        }
        if self.topology.len() == NODES_MAX {
            let remedy =
                format!("is one too many; at most {NODES_MAX} hosts and switches are possible");
            return Err(self.wrong(name, &remedy));
        }
        let node = self.topology.add(name.get_ref(), device);
        self.known.insert(name.get_ref(), (node, line(self.text, name.span())));
        Ok(node)
    }

    fn twice(&self, name: &Name) -> String {
        self.wrong(name, "is in this list twice; name it once")
    }

    fn wrong(&self, name: &Name, what: &str) -> String {
        at(self.text, name.span(), &format!("{:?} {what}", name.get_ref()))
    }
}

fn is_in(names: &[Name], name: &Name) -> bool {
    names.iter().any(|other| other.get_ref() == name.get_ref())
}
