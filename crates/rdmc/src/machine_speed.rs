//! How fast this machine copies, folds and sends: what the costs of a team take from a measurement, beside the time of a write.

use std::{
    hint::black_box,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::OnceLock,
    time::{Duration, Instant},
};

use collective::{Op, Reduction, Type, model::WriteCosts};

/// The length of what is copied and folded: fits into a processor's own caches, as the pieces of a long message do.
const MEMORY_BYTES: usize = 64 << 10;

/// The length of a short write with its header.
const SHORT_BYTES: usize = 64;

/// How often each is measured; the least time counts, since all other programs can only add to it.
const REPETITIONS: usize = 9;

/// How long what was sent may take to arrive at the same machine.
const PATIENCE: Duration = Duration::from_millis(100);

/// What was measured here.
#[derive(Clone, Copy, Debug)]
struct MachineSpeed {
    copy_us_per_byte: f64,
    fold_us_per_byte: f64,
    /// Of a system call that sends a short write over TCP to this machine; `None` where it does not work.
    send_us: Option<f64>,
}

/// Returns costs with this machine's times in place of those of the machine on which they were adjusted. The first call in a
/// process measures, for some tenths of a millisecond.
pub(crate) fn measured(costs: WriteCosts) -> WriteCosts {
    static HERE: OnceLock<MachineSpeed> = OnceLock::new();
    HERE.get_or_init(MachineSpeed::measure).applied_to(costs)
}

impl MachineSpeed {
    fn measure() -> Self {
        let (mut to, from) = (vec![0_u8; MEMORY_BYTES], vec![0_u8; MEMORY_BYTES]);
        let us_per_byte = |time: Duration| microseconds(time) / MEMORY_BYTES as f64;
        let copy = least(|| black_box(&mut to[..]).copy_from_slice(black_box(&from)));
        let sum = Reduction::Elements(Type::F32, Op::Sum);
        let fold = least(|| {
            let folded = sum.fold(black_box(&mut to), black_box(&from));
            debug_assert!(folded.is_ok(), "equal lengths of whole elements");
        });
        Self {
            copy_us_per_byte: us_per_byte(copy),
            fold_us_per_byte: us_per_byte(fold),
            send_us: send().ok().map(microseconds),
        }
    }

    /// What a processor does for a write is in proportion to a system call that sends.
    fn applied_to(self, costs: WriteCosts) -> WriteCosts {
        let slowness = self.send_us.map_or(1.0, |us| us / WriteCosts::TCP_LOCAL.post_us);
        WriteCosts {
            copy_us_per_byte: self.copy_us_per_byte,
            fold_us_per_byte: self.fold_us_per_byte,
            post_us: costs.post_us * slowness,
            library_us: costs.library_us * slowness,
            work_us: costs.work_us * slowness,
            ..costs
        }
    }
}

/// Returns the least time of a call that sends a short write to a socket of this machine.
fn send() -> io::Result<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, from) = listener.accept()?;
    if near.local_addr()? != from {
        return Err(io::Error::other("another program has connected"));
    }
    near.set_nodelay(true)?;
    far.set_read_timeout(Some(PATIENCE))?;
    let mut bytes = [0; SHORT_BYTES];
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        near.write_all(&bytes)?;
        times.push(start.elapsed());
        far.read_exact(&mut bytes)?;
    }
    Ok(times.into_iter().min().unwrap_or_default())
}

fn least(mut act: impl FnMut()) -> Duration {
    let time = |_| {
        let start = Instant::now();
        act();
        start.elapsed()
    };
    (0..REPETITIONS).map(time).min().unwrap_or_default()
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_of_half_the_speed_doubles_what_its_processors_do() {
        let slow = MachineSpeed {
            copy_us_per_byte: 0.5,
            fold_us_per_byte: 0.25,
            send_us: Some(2.0 * WriteCosts::TCP_LOCAL.post_us),
        };
        let costs = slow.applied_to(WriteCosts::DEVICE);
        let WriteCosts { post_us, library_us, work_us, .. } = WriteCosts::DEVICE;
        assert_eq!((costs.copy_us_per_byte, costs.fold_us_per_byte), (0.5, 0.25));
        assert_eq!(
            (costs.post_us, costs.library_us, costs.work_us),
            (2.0 * post_us, 2.0 * library_us, 2.0 * work_us)
        );
        // The network's own part does not change.
        assert_eq!(costs.dma_start_us, WriteCosts::DEVICE.dma_start_us);
        let unknown = MachineSpeed { send_us: None, ..slow };
        assert_eq!(unknown.applied_to(WriteCosts::TCP).post_us, WriteCosts::TCP.post_us);
    }

    #[test]
    fn what_is_measured_here_is_valid() {
        let costs = measured(WriteCosts::TCP);
        assert!(costs.are_valid(), "{costs}");
        assert!(costs.post_us > 0.0 && costs.copy_us_per_byte > 0.0, "{costs}");
        assert_eq!(costs, measured(WriteCosts::TCP), "measured once");
    }
}
