//! Counting: how many cases of which class of bad input were tried, and what they cost.

use std::{collections::BTreeMap, fmt, io::Write, time::Duration};

/// A class of bad input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Certificates and TLS.
    B1 = 1,
    /// Tokens.
    B2,
    /// Somebody else's identity.
    B3,
    /// What the caller may not do.
    B4,
    /// The protocol itself.
    B5,
    /// Sizes.
    B6,
    /// Compression.
    B7,
    /// HTTP/2.
    B8,
    /// Content; the two between, what is slow and what comes and goes, are counted in connections.
    B11 = 11,
    /// Attacks on the state.
    B12,
    /// What a proxy says to ADS.
    B13,
    /// API and command line.
    B14,
    /// Configuration and operation.
    B15,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `{:<4}` and the like are honoured only by `pad`.
        f.pad(&format!("B{}", *self as u8))
    }
}

/// Cases by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<Class, usize>);

impl Tally {
    /// One case each.
    pub fn of(classes: impl IntoIterator<Item = Class>) -> Self {
        let mut tally = Self::default();
        classes.into_iter().for_each(|class| tally.add(class, 1));
        tally
    }

    /// More cases of a class.
    pub fn add(&mut self, class: Class, cases: usize) {
        *self.0.entry(class).or_default() += cases;
    }

    /// The cases of another one too.
    pub fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|(class, cases)| self.add(*class, *cases));
    }

    /// How many of a class.
    pub fn count(&self, class: Class) -> usize {
        self.0.get(&class).copied().unwrap_or_default()
    }

    /// All of them.
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// In how many classes.
    pub fn classes(&self) -> usize {
        self.0.len()
    }

    /// Says what was tried against whom, one line per class.
    pub fn tell(&self, front: &str, slowest: Duration, cost: &str) {
        for (class, cases) in &self.0 {
            say(&format!("{class} {cases} cases against {front}, slowest {slowest:.1?}, {cost}"));
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cases in {} classes", self.total(), self.classes())?;
        for (separator, (class, cases)) in [": "].into_iter().chain(std::iter::repeat(", ")).zip(&self.0) {
            write!(f, "{separator}{class} {cases}")?;
        }
        Ok(())
    }
}

/// A line of the output that is shown even when the test passes, which `eprintln!` is not.
pub fn say(text: &str) {
    let line = format!("bad input: {text}\n");
    let _nobody_reads_it = std::io::stderr().write_all(line.as_bytes());
}
