//! DCQCN as others describe or simulate it: one reaction point with a parameter for each difference.
//!
//! [`roce::rc`] has one of its own for endpoints, which the simulator uses by default. Results of a simulation
//! depend on the variant, so it is part of a simulation's configuration. For the MC-RDMA paper's figures 8 and 9:
//! each variant is run with the same requests, and the page of results says which differences matter.

/// A variant of DCQCN. Rates are in bits per second.
///
/// | parameter | [`Dcqcn::paper`] | [`Dcqcn::endpoint`] | [`Dcqcn::hpcc`] |
/// |---|---|---|---|
/// | `floor_bits_per_s` | line / 1000 | line / 1000 | 1 Gbit/s |
/// | `gain` | 1/256 | 1/256 | 1/256 |
/// | `alpha_timer_ns` | 55 µs | 55 µs | 1 µs |
/// | `cut_timer_ns` | at each CNP | at each CNP | 4 µs |
/// | `rise_timer_ns` | 55 µs | 55 µs | 300 µs |
/// | `rise_bytes` | 10 MB | 10 MB | none |
/// | `fast_rises` | 5 | 5 | 1 |
/// | `additive_bits_per_s` | line / 1000 | line / 1000 | 20 Mbit/s |
/// | `hyper_bits_per_s` | line / 100 | line / 100 | 200 Mbit/s |
/// | `clamps_each_cut` | yes | yes | no |
/// | `freezes_at_line` | no | yes | no |
/// | `restarts_when_idle` | no | no | yes |
/// | `notification_timer_ns` | 50 µs | 50 µs | each marked packet |
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dcqcn {
    /// The maximum.
    pub line_bits_per_s: f64,
    /// The minimum.
    pub floor_bits_per_s: f64,
    /// g: gain of the congestion estimate alpha.
    pub gain: f64,
    /// Time after which alpha decays. If cuts have a timer, alpha rises at most once in it as well.
    pub alpha_timer_ns: u64,
    /// `None`: each CNP cuts the rate, raises alpha, and restarts the timers. Otherwise a timer that runs
    /// on from the first CNP cuts the rate if there has been a CNP since it last expired.
    pub cut_timer_ns: Option<u64>,
    /// Rate increase timer.
    pub rise_timer_ns: u64,
    /// Rate increase byte counter. `None`: the timer alone counts, so hyper increase begins two
    /// rises after fast recovery.
    pub rise_bytes: Option<u64>,
    /// F: rises of fast recovery.
    pub fast_rises: u32,
    /// Additive increase.
    pub additive_bits_per_s: f64,
    /// Hyper increase.
    pub hyper_bits_per_s: f64,
    /// Each cut moves the target to the rate before it. Otherwise only one that follows a rise: the
    /// rate rises again to where a burst of CNPs began.
    pub clamps_each_cut: bool,
    /// Alpha does not decay at the line's rate.
    pub freezes_at_line: bool,
    /// A message that finds its queue pair idle begins at the line's rate, without memory of CNPs.
    pub restarts_when_idle: bool,
    /// A receiver sends at most one CNP to a queue pair in this time.
    pub notification_timer_ns: u64,
}

impl Dcqcn {
    /// Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015: equations 1 to 4,
    /// figure 14 and section 5; rises in proportion to the link's rate, as in
    /// [`roce::rc::RateConfig::of_link`]. Alpha's timer has no exception at line rate.
    #[must_use]
    pub fn paper(line_bits_per_s: f64) -> Self {
        Self {
            line_bits_per_s,
            floor_bits_per_s: line_bits_per_s / 1000.0,
            gain: 1.0 / 256.0,
            alpha_timer_ns: 55_000,
            cut_timer_ns: None,
            rise_timer_ns: 55_000,
            rise_bytes: Some(10_000_000),
            fast_rises: 5,
            additive_bits_per_s: line_bits_per_s / 1000.0,
            hyper_bits_per_s: line_bits_per_s / 100.0,
            clamps_each_cut: true,
            freezes_at_line: false,
            restarts_when_idle: false,
            notification_timer_ns: 50_000,
        }
    }

    /// That of [`roce::rc`]: the paper's, but a queue pair that has come back to its link's rate keeps alpha.
    #[must_use]
    pub fn endpoint(line_bits_per_s: f64) -> Self {
        Self { freezes_at_line: true, ..Self::paper(line_bits_per_s) }
    }

    /// The public ns-3 model of HPCC's authors (alibaba-edu/High-Precision-Congestion-Control at 9f4be2a9).
    ///
    /// Timers, F, g, rises and floor: simulation/run.py, `--cc dcqcn --bw 100` (rises there: 5 and 50 Mbit/s
    /// for each 25 Gbit/s). Cuts, alpha and target: `CheckRateDecreaseMlx`, `UpdateAlphaMlx` and
    /// `cnp_received_mlx` in src/point-to-point/model/rdma-hw.cc, with `CLAMP_TARGET_RATE 0`. No byte counter:
    /// `RateIncEventMlx`. `ReceiveUdp` in the same file answers each marked packet with a notification. Each message is a
    /// queue pair of its own, which starts at line rate (`RdmaHw::AddQueuePair`): here messages of a queue pair
    /// still follow one another, but it forgets when it is idle. That model's marks and dynamic
    /// thresholds of pauses are not part of this.
    #[must_use]
    pub fn hpcc(line_bits_per_s: f64) -> Self {
        Self {
            line_bits_per_s,
            floor_bits_per_s: 1e9,
            gain: 1.0 / 256.0,
            alpha_timer_ns: 1000,
            cut_timer_ns: Some(4000),
            rise_timer_ns: 300_000,
            rise_bytes: None,
            fast_rises: 1,
            additive_bits_per_s: 20e6,
            hyper_bits_per_s: 200e6,
            clamps_each_cut: false,
            freezes_at_line: false,
            restarts_when_idle: true,
            notification_timer_ns: 0,
        }
    }

    /// [`Dcqcn::hpcc`] with receivers that send a CNP in 50 µs at most, as network cards do. It cuts by half once where that
    /// cuts at each expiry of its timer, as long as a queue is marked.
    #[must_use]
    pub fn hpcc_paced(line_bits_per_s: f64) -> Self {
        Self { notification_timer_ns: 50_000, ..Self::hpcc(line_bits_per_s) }
    }
}

/// The rate of one queue pair. Timers are evaluated when it is asked or told something.
#[derive(Clone, Debug)]
pub struct RateLimit {
    config: Dcqcn,
    current: f64,
    target: f64,
    alpha: f64,
    /// At the line's rate, where it does not rise.
    is_at_line: bool,
    /// A CNP has come: alpha's timer runs, and that of cuts.
    has_begun: bool,
    alpha_at_ns: u64,
    /// With a timer of cuts: a CNP has come since alpha's timer last expired.
    raises_alpha: bool,
    /// With a timer of cuts: when it expires; `None`: no CNP has come.
    cut_at_ns: Option<u64>,
    /// One of the timer's expiries.
    cuts_from_ns: u64,
    rise_at_ns: u64,
    timer_rises: u32,
    byte_rises: u32,
    bytes: u64,
    ready_ns: u64,
}

impl RateLimit {
    /// At the line's rate.
    pub const fn new(config: Dcqcn) -> Self {
        Self {
            config,
            current: config.line_bits_per_s,
            target: config.line_bits_per_s,
            alpha: 1.0,
            is_at_line: true,
            has_begun: false,
            alpha_at_ns: 0,
            raises_alpha: false,
            cut_at_ns: None,
            cuts_from_ns: 0,
            rise_at_ns: 0,
            timer_rises: 0,
            byte_rises: 0,
            bytes: 0,
            ready_ns: 0,
        }
    }

    pub const fn bits_per_s(&self) -> f64 {
        self.current
    }

    /// When the next packet may go.
    pub const fn ready_ns(&self) -> u64 {
        self.ready_ns
    }

    /// A message finds the queue pair idle.
    pub const fn begin(&mut self) {
        if self.config.restarts_when_idle {
            *self = Self { ready_ns: self.ready_ns, ..Self::new(self.config) };
        }
    }

    /// A CNP has come.
    pub fn notified(&mut self, now_ns: u64) {
        self.advance(now_ns);
        let Some(timer_ns) = self.config.cut_timer_ns else {
            self.cut(now_ns);
            self.alpha += self.config.gain * (1.0 - self.alpha);
            self.alpha_at_ns = now_ns + self.config.alpha_timer_ns;
            self.has_begun = true;
            return;
        };
        if self.has_begun {
            self.decay(now_ns);
            self.raises_alpha = true;
        } else {
            self.has_begun = true;
            self.alpha_at_ns = now_ns + self.config.alpha_timer_ns;
            self.cuts_from_ns = now_ns;
        }
        let expired = (now_ns - self.cuts_from_ns) / timer_ns;
        self.cut_at_ns = Some(self.cuts_from_ns + (expired + 1) * timer_ns);
    }

    /// A packet of this many bytes on the link goes now.
    pub fn sent(&mut self, now_ns: u64, bytes: u64) {
        self.advance(now_ns);
        let pause_ns = bytes as f64 * 8e9 / self.current;
        self.ready_ns = self.ready_ns.max(now_ns) + pause_ns as u64;
        let Some(rise_bytes) = self.config.rise_bytes else { return };
        self.bytes += bytes;
        while self.bytes >= rise_bytes {
            self.bytes -= rise_bytes;
            self.byte_rises += 1;
            self.decay(now_ns);
            self.rise();
        }
    }

    /// What timers have done until now, in their order.
    fn advance(&mut self, now_ns: u64) {
        loop {
            let cut_ns = self.cut_at_ns.unwrap_or(u64::MAX);
            let rise_ns = if self.is_at_line { u64::MAX } else { self.rise_at_ns };
            if cut_ns.min(rise_ns) > now_ns {
                break;
            }
            if cut_ns <= rise_ns {
                self.cut(cut_ns);
            } else {
                // Alpha may freeze at the rate that this reaches.
                self.decay(rise_ns);
                self.rise_at_ns += self.config.rise_timer_ns;
                self.timer_rises += 1;
                self.rise();
            }
        }
    }

    fn cut(&mut self, at_ns: u64) {
        self.decay(at_ns);
        let has_risen = self.timer_rises > 0 || self.byte_rises > 0;
        if self.config.clamps_each_cut || has_risen {
            self.target = self.current;
        }
        let cut = self.current * (1.0 - self.alpha / 2.0);
        self.current = cut.max(self.config.floor_bits_per_s);
        self.is_at_line = false;
        self.cut_at_ns = None;
        self.rise_at_ns = at_ns + self.config.rise_timer_ns;
        (self.timer_rises, self.byte_rises, self.bytes) = (0, 0, 0);
    }

    /// Alpha's timer until then.
    fn decay(&mut self, until_ns: u64) {
        if !self.has_begun || until_ns < self.alpha_at_ns {
            return;
        }
        if self.is_at_line && self.config.freezes_at_line {
            return;
        }
        let expiries = (until_ns - self.alpha_at_ns) / self.config.alpha_timer_ns + 1;
        self.alpha_at_ns += expiries * self.config.alpha_timer_ns;
        self.alpha *= (1.0 - self.config.gain).powi(i32::try_from(expiries).unwrap_or(i32::MAX));
        if std::mem::take(&mut self.raises_alpha) {
            // The first of them rose; the others have decayed that as well.
            let rest = i32::try_from(expiries - 1).unwrap_or(i32::MAX);
            self.alpha += self.config.gain * (1.0 - self.config.gain).powi(rest);
        }
    }

    fn rise(&mut self) {
        let config = self.config;
        let (fewest, most) =
            (self.timer_rises.min(self.byte_rises), self.timer_rises.max(self.byte_rises));
        let hyper = match config.rise_bytes {
            Some(_) => fewest.saturating_sub(config.fast_rises),
            None => u32::from(most > config.fast_rises + 1),
        };
        if hyper > 0 {
            self.target += config.hyper_bits_per_s * f64::from(hyper);
        } else if most > config.fast_rises {
            self.target += config.additive_bits_per_s;
        }
        self.target = self.target.min(config.line_bits_per_s);
        self.current = f64::midpoint(self.target, self.current);
        if self.current > 0.999 * config.line_bits_per_s {
            self.current = config.line_bits_per_s;
            self.is_at_line = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use roce::rc::{Rate, RateConfig};

    use super::*;
    use crate::random::Random;

    const LINE: f64 = 1e11;

    fn gbit_per_s(limit: &RateLimit) -> f64 {
        limit.bits_per_s() / 1e9
    }

    /// Packets and CNPs at random times, more or less often.
    #[test]
    fn the_endpoints_variant_is_that_of_the_endpoints() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut theirs = Rate::new(RateConfig::of_link(LINE));
            let mut ours = RateLimit::new(Dcqcn::endpoint(LINE));
            let mut now_ns = 0;
            let often = [0.3, 0.03, 0.003][seed as usize % 3];
            for _ in 0..20_000 {
                now_ns += random.below(20_000) as u64;
                if random.part() < often {
                    theirs.notified(now_ns);
                    ours.notified(now_ns);
                } else {
                    let bytes = random.below(100_000) as u64;
                    theirs.sent(now_ns, bytes);
                    ours.sent(now_ns, bytes);
                }
                let ratio = ours.bits_per_s() / theirs.bits_per_s();
                assert!((ratio - 1.0).abs() < 1e-9, "seed {seed}, {now_ns} ns: {ratio}");
            }
        }
    }

    /// The reaction to the next CNP after 14 ms at the line's rate.
    fn after_a_rest(config: Dcqcn) -> f64 {
        let mut limit = RateLimit::new(config);
        limit.notified(0);
        // Every 50 µs, so that nothing is evaluated late.
        (1..600).for_each(|step| limit.sent(step * 50_000, 100));
        assert_eq!(limit.bits_per_s(), LINE);
        limit.notified(30_000_000);
        gbit_per_s(&limit)
    }

    #[test]
    fn alpha_decays_at_line_rate_unless_it_is_frozen() {
        // 545 decays by 1/256.
        let paper = after_a_rest(Dcqcn::paper(LINE));
        assert!((94.0..94.2).contains(&paper), "{paper}");
        let endpoint = after_a_rest(Dcqcn::endpoint(LINE));
        assert!((50.0..53.0).contains(&endpoint), "{endpoint}");
    }

    #[test]
    fn hpccs_variant_cuts_every_four_us_and_comes_back_to_where_it_was() {
        let mut limit = RateLimit::new(Dcqcn::hpcc(LINE));
        limit.notified(1000);
        limit.sent(4999, 0);
        assert_eq!(gbit_per_s(&limit), 100.0, "its timer has not expired");
        limit.sent(5000, 0);
        let first = gbit_per_s(&limit);
        // Alpha has decayed four times.
        assert!((first - 50.8).abs() < 0.1, "{first}");
        for now_ns in [6000, 7000, 8000] {
            limit.notified(now_ns);
        }
        limit.sent(9000, 0);
        let second = gbit_per_s(&limit);
        assert!((25.0..26.5).contains(&second), "one cut for three CNPs: {second}");
        limit.sent(308_999, 0);
        assert_eq!(gbit_per_s(&limit), second);
        limit.sent(309_000, 0);
        assert_eq!(
            gbit_per_s(&limit),
            f64::midpoint(100.0, second),
            "half of the way to the target"
        );
    }

    #[test]
    fn hpccs_variant_forgets_when_it_is_idle() {
        for (config, expected) in [(Dcqcn::hpcc(LINE), 100.0), (Dcqcn::paper(LINE), 50.0)] {
            let mut limit = RateLimit::new(config);
            limit.notified(0);
            limit.sent(4000, 1000);
            let ready_ns = limit.ready_ns();
            limit.begin();
            assert_eq!((gbit_per_s(&limit), limit.ready_ns()), (expected, ready_ns));
        }
    }

    #[test]
    fn hpccs_alpha_follows_how_often_there_are_notifications() {
        let alpha = |every_ns: u64| {
            let mut limit = RateLimit::new(Dcqcn::hpcc(LINE));
            (0..20_000_000 / every_ns).for_each(|number| limit.notified(number * every_ns));
            limit.alpha
        };
        assert!((alpha(500) - 1.0).abs() < 0.01);
        assert!((alpha(10_000) - 0.1).abs() < 0.02, "{}", alpha(10_000));
    }
}
