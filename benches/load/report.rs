//! What is printed.

use std::time::Duration;

use load::{AdsProtocol, Fleet, Observation, Observer, ResourceType, Scenario, Storm};

/// Prints what was measured, a line each.
pub struct LoadReport {
    proxies: usize,
    dataplanes: usize,
}

impl LoadReport {
    /// Says what is measured.
    pub fn new(scenario: &Scenario, protocol: AdsProtocol) -> Self {
        println!(
            "{} proxies of {} services, {} outbounds each, {} more endpoints, {protocol:?}, mTLS {}",
            scenario.proxies,
            scenario.services,
            scenario.outbounds.min(scenario.services),
            scenario.endpoints,
            if scenario.mtls { "on" } else { "off" },
        );
        Self { proxies: scenario.proxies, dataplanes: scenario.proxies + scenario.endpoints }
    }

    /// The dataplanes are stored.
    pub fn stored(&self, took: Duration, memory: Option<u64>) {
        let rate = self.dataplanes as f64 / took.as_secs_f64().max(1e-9);
        let memory = memory.map(|m| format!(", resident {} MiB", m >> 20)).unwrap_or_default();
        println!("  dataplanes stored         {}, {rate:.0} a second{memory}", show(took));
    }

    /// Every proxy has what it asked for.
    pub fn ready(&self, took: Duration, observer: &Observer, spent: Option<(Duration, Duration)>) {
        let sent: u64 = observer.traffic().iter().map(|t| t.bytes).sum();
        let used =
            spent.map(|(before, now)| format!(", processor {}", show(now - before))).unwrap_or_default();
        println!("  first configuration       {}, {} MiB sent{used}", show(took), sent >> 20);
        for (kind, traffic) in ResourceType::ALL.iter().zip(observer.traffic()) {
            println!(
                "    {}   {} responses, {} resources, {} KiB",
                kind.short(),
                traffic.responses,
                traffic.resources,
                traffic.bytes >> 10
            );
        }
    }

    /// Memory before the proxies came, and with them at rest.
    pub fn memory(&self, before: u64, now: u64) {
        let each = now.saturating_sub(before) / self.proxies.max(1) as u64;
        println!("  memory at rest            {} MiB, {} KiB a proxy", now >> 20, each >> 10);
    }

    /// A change that was made several times.
    pub fn change(&self, what: &str, seen: &[Observation], spent: Duration) {
        let mut took: Vec<_> = seen.iter().map(|o| o.last_ack).collect();
        took.sort_unstable();
        let late = seen.iter().filter(|o| !o.complete).count();
        let rounds = u32::try_from(seen.len()).unwrap_or(u32::MAX).max(1);
        let last = seen.last().map(Observation::shown).unwrap_or_default();
        println!(
            "  {what:<25} last ACK after {} (median), {} (longest), processor {}; sent: {last}",
            show(took[took.len() / 2]),
            show(took[took.len() - 1]),
            show(spent / rounds),
        );
        if late > 0 {
            println!("    {late} of {rounds} were not acknowledged by all that were expected");
        }
    }

    /// A storm of changes.
    pub fn storm(&self, storm: &Storm) {
        let longest = storm.seconds.iter().max().copied().unwrap_or_default();
        let [before, highest, after] = storm.memory.map(|m| m >> 20);
        println!(
            "  storm                     last ACK of a second's changes at most {}, at the end {} after the last; \
             memory {before}, {highest}, {after} MiB before, highest, after",
            show(longest),
            show(storm.settled.last_ack),
        );
    }

    /// Streams that did not last.
    pub fn streams(&self, fleet: &Fleet) {
        if fleet.ended() > 0 {
            println!("  {} streams ended: {}", fleet.ended(), fleet.reasons());
        }
    }
}

/// A time in the unit people read.
fn show(time: Duration) -> String {
    match time.as_micros() {
        us @ 0..1_000 => format!("{us} µs"),
        us @ 1_000..1_000_000 => format!("{}.{:02} ms", us / 1000, us % 1000 / 10),
        us => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}
