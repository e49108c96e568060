//! DCQCN's reaction point (Zhu et al., Congestion Control for Large-Scale RDMA Deployments,
//! SIGCOMM 2015, section 5), which RoCEv2 network cards have.

/// DCQCN's parameters; rates in bits per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateConfig {
    /// The link's rate: the maximum.
    pub line_bits_per_s: f64,
    /// The minimum.
    pub floor_bits_per_s: f64,
    /// g: gain of the congestion estimate.
    pub gain: f64,
    /// The estimate decays after this time without a CNP.
    pub alpha_timer_ns: u64,
    /// Rate increase timer.
    pub rise_timer_ns: u64,
    /// Rate increase byte counter.
    pub rise_bytes: u64,
    /// F: increases of fast recovery, before those of additive increase.
    pub fast_rises: u32,
    /// Additive increase.
    pub additive_bits_per_s: f64,
    /// Hyper increase.
    pub hyper_bits_per_s: f64,
}

impl RateConfig {
    /// The paper's parameters (its figure 14), with rises in proportion to the link: 40 Mbit/s of
    /// 40 Gbit/s, ten times that when nothing was in the way for long.
    #[must_use]
    pub fn of_link(line_bits_per_s: f64) -> Self {
        Self {
            line_bits_per_s,
            floor_bits_per_s: line_bits_per_s / 1000.0,
            gain: 1.0 / 256.0,
            alpha_timer_ns: 55_000,
            rise_timer_ns: 55_000,
            rise_bytes: 10_000_000,
            fast_rises: 5,
            additive_bits_per_s: line_bits_per_s / 1000.0,
            hyper_bits_per_s: line_bits_per_s / 100.0,
        }
    }
}

/// How fast a queue pair may send.
#[derive(Clone, Debug)]
pub struct Rate {
    config: RateConfig,
    current: f64,
    target: f64,
    /// Congestion estimate, 0 to 1.
    alpha: f64,
    /// At the maximum: neither alpha nor the timers are used.
    is_at_line: bool,
    alpha_at_ns: u64,
    rise_at_ns: u64,
    timer_rises: u32,
    byte_rises: u32,
    bytes: u64,
    /// The next packet may go then.
    ready_ns: u64,
}

impl Rate {
    /// At the link's rate.
    #[must_use]
    pub const fn new(config: RateConfig) -> Self {
        Self {
            config,
            current: config.line_bits_per_s,
            target: config.line_bits_per_s,
            alpha: 1.0,
            is_at_line: true,
            alpha_at_ns: 0,
            rise_at_ns: 0,
            timer_rises: 0,
            byte_rises: 0,
            bytes: 0,
            ready_ns: 0,
        }
    }

    /// In bits per second.
    #[must_use]
    pub const fn bits_per_s(&self) -> f64 {
        self.current
    }

    /// When the next packet may go.
    #[must_use]
    pub const fn ready_ns(&self) -> u64 {
        self.ready_ns
    }

    /// A congestion notification has come (equation 1).
    pub fn notified(&mut self, now_ns: u64) {
        self.advance(now_ns);
        let config = self.config;
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(config.floor_bits_per_s);
        self.alpha = (1.0 - config.gain) * self.alpha + config.gain;
        self.is_at_line = false;
        (self.alpha_at_ns, self.rise_at_ns) =
            (now_ns + config.alpha_timer_ns, now_ns + config.rise_timer_ns);
        (self.timer_rises, self.byte_rises, self.bytes) = (0, 0, 0);
    }

    /// A packet of this many bytes, headers and all, goes now.
    pub fn sent(&mut self, now_ns: u64, bytes: u64) {
        self.advance(now_ns);
        let pause_ns = bytes as f64 * 8e9 / self.current;
        self.ready_ns = self.ready_ns.max(now_ns) + pause_ns as u64;
        self.bytes += bytes;
        while self.bytes >= self.config.rise_bytes {
            self.bytes -= self.config.rise_bytes;
            self.byte_rises += 1;
            self.rise();
        }
    }

    /// What has happened by the clock alone (equations 2 to 4).
    fn advance(&mut self, now_ns: u64) {
        if self.is_at_line {
            return;
        }
        while self.alpha_at_ns <= now_ns {
            self.alpha *= 1.0 - self.config.gain;
            self.alpha_at_ns += self.config.alpha_timer_ns;
        }
        while self.rise_at_ns <= now_ns && !self.is_at_line {
            self.rise_at_ns += self.config.rise_timer_ns;
            self.timer_rises += 1;
            self.rise();
        }
    }

    fn rise(&mut self) {
        let config = self.config;
        let (fewest, most) =
            (self.timer_rises.min(self.byte_rises), self.timer_rises.max(self.byte_rises));
        if fewest > config.fast_rises {
            self.target += config.hyper_bits_per_s * f64::from(fewest - config.fast_rises);
        } else if most > config.fast_rises {
            self.target += config.additive_bits_per_s;
        }
        self.target = self.target.min(config.line_bits_per_s);
        self.current = f64::midpoint(self.target, self.current);
        // Halving the way for ever never gets there.
        if self.current > 0.999 * config.line_bits_per_s {
            self.current = config.line_bits_per_s;
            self.is_at_line = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: f64 = 1e11;

    #[test]
    fn the_first_notification_halves_the_rate_which_recovers() {
        let mut rate = Rate::new(RateConfig::of_link(LINE));
        assert_eq!(rate.bits_per_s(), LINE);
        rate.notified(1000);
        assert_eq!(rate.bits_per_s(), LINE / 2.0);
        let mut now_ns = 1000;
        for _ in 0..5 {
            now_ns += 55_000;
            rate.sent(now_ns, 100);
        }
        assert!(rate.bits_per_s() > 0.98 * LINE, "five fast rises: {}", rate.bits_per_s());
        rate.sent(now_ns + 10_000_000, 100);
        assert_eq!(rate.bits_per_s(), LINE);
    }

    #[test]
    fn packets_are_as_far_apart_as_the_rate_says() {
        let mut rate = Rate::new(RateConfig::of_link(LINE));
        rate.sent(0, 1250);
        assert_eq!(rate.ready_ns(), 100);
        rate.sent(100, 1250);
        assert_eq!(rate.ready_ns(), 200);
        rate.notified(200);
        rate.sent(200, 1250);
        assert_eq!(rate.ready_ns(), 400);
    }

    #[test]
    fn with_a_notification_each_time_it_falls_to_the_floor_and_no_further() {
        let mut rate = Rate::new(RateConfig::of_link(LINE));
        for number in 0..1000 {
            rate.notified(number * 1000);
        }
        assert_eq!(rate.bits_per_s(), LINE / 1000.0);
    }
}
