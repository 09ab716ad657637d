//! Counting: how many cases of which class of bad input were tried, and what they cost.

use std::{collections::BTreeMap, fmt, io::Write, time::Duration};

/// A class of bad input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Certificates and TLS.
    Certificates,
    /// Tokens that are forged, stolen or out of date.
    Tokens,
    /// Somebody else's identity.
    Identity,
    /// What the caller may not do.
    Rights,
    /// What is said in the wrong order, or in no language of the protocol.
    Conversation,
    /// What is too large, too long or too many.
    Sizes,
    /// Compressed messages.
    Compression,
    /// Frames of HTTP/2.
    Frames,
    /// Clients that let others wait.
    Slowness,
    /// Clients that come and go.
    Churn,
    /// Documents that are wrong in what they say.
    Content,
    /// What would wear the state out, or turn it back.
    State,
    /// What a proxy says about itself.
    Proxies,
    /// Callers of the API and of the command line.
    Callers,
    /// What a process finds when it starts.
    Startup,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Certificates,
        Self::Tokens,
        Self::Identity,
        Self::Rights,
        Self::Conversation,
        Self::Sizes,
        Self::Compression,
        Self::Frames,
        Self::Slowness,
        Self::Churn,
        Self::Content,
        Self::State,
        Self::Proxies,
        Self::Callers,
        Self::Startup,
    ];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificates => "certificates",
            Self::Tokens => "tokens",
            Self::Identity => "identity",
            Self::Rights => "rights",
            Self::Conversation => "conversation",
            Self::Sizes => "sizes",
            Self::Compression => "compression",
            Self::Frames => "frames",
            Self::Slowness => "slowness",
            Self::Churn => "churn",
            Self::Content => "content",
            Self::State => "state",
            Self::Proxies => "proxies",
            Self::Callers => "callers",
            Self::Startup => "startup",
        })
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
            say(&format!("{class}: {cases} cases against {front}, slowest {slowest:.1?}, {cost}"));
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
