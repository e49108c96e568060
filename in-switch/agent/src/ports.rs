//! The switch's ports.

use std::sync::Arc;

use mcrdma::Port;

/// Names and indices of the ports.
#[derive(Clone)]
pub(crate) struct Ports(Arc<[(String, Port)]>);

impl Ports {
    pub(crate) fn new(ports: Vec<(String, Port)>) -> Self {
        Self(ports.into())
    }

    /// A port's name; of one that is not the agent's its index.
    pub(crate) fn name(&self, port: Port) -> String {
        let known = self.iter().find(|(_, number)| *number == port);
        known.map_or_else(|| port.to_string(), |(name, _)| name.clone())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(String, Port)> {
        self.0.iter()
    }
}
