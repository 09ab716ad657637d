//! The form of the table, the same for every front: what is sent there, what must come back, and what it may
//! cost.

use std::{borrow::Cow, fmt, time::Duration};

use tokio::time::{Instant, timeout};

use crate::harness::{
    budget::{Before, Budget},
    process::Process,
    tally::{Class, Tally, say},
};

/// Longest a front may take over one case. A multiple of what an idle machine needs; an answer that depends
/// on the length or depth of its input is beyond it.
const PATIENCE: Duration = Duration::from_secs(30);
/// What one case may add to the log of a process.
const LOG: usize = 8 << 10;
/// What a batch may add to the memory of a process: what was stored, and what the arenas of the threads that
/// happened to work on it keep, which is between 20 and 70 MiB for the same batch.
const MEMORY: u64 = 128 << 20;

/// One row.
pub struct Case<I> {
    /// What sort of badness it is.
    pub class: Class,
    /// What is wrong with it.
    pub what: Cow<'static, str>,
    /// What is sent.
    pub input: I,
    /// What must come back.
    pub expect: Expect,
}

/// What must come back.
#[derive(Clone, Debug)]
pub struct Expect {
    /// Any of these verdicts: an HTTP status, a gRPC code, an exit code, a word of the front.
    verdicts: &'static [&'static str],
    /// Words the answer must have: where it is wrong, and what to do.
    says: Cow<'static, [&'static str]>,
    /// Words it must not have.
    hides: &'static [&'static str],
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// In the terms of [`Expect`].
    pub verdict: String,
    /// All that was said.
    pub text: String,
}

impl Answer {
    /// An answer.
    pub fn new(verdict: impl fmt::Display, text: impl Into<String>) -> Self {
        Self { verdict: verdict.to_string(), text: text.into() }
    }
}

/// A row; `verdict` may be several, of which any will do.
pub fn case<I>(
    class: Class,
    what: impl Into<Cow<'static, str>>,
    input: I,
    verdicts: &'static [&'static str],
    says: &'static [&'static str],
) -> Case<I> {
    Case { class, what: what.into(), input, expect: Expect { verdicts, says: says.into(), hides: &[] } }
}

impl<I> Case<I> {
    /// The same, and the answer must not have these words.
    pub fn hiding(mut self, words: &'static [&'static str]) -> Self {
        self.expect.hides = words;
        self
    }
}

impl Expect {
    fn check(&self, answer: &Answer) -> Result<(), String> {
        let shown: String = answer.text.chars().take(600).collect();
        if !self.verdicts.contains(&answer.verdict.as_str()) {
            return Err(format!("{} instead of {:?}: {shown}", answer.verdict, self.verdicts));
        }
        if let Some(words) = self.says.iter().find(|words| !answer.text.contains(**words)) {
            return Err(format!("does not say {words:?}: {shown}"));
        }
        match self.hides.iter().find(|words| answer.text.contains(**words)) {
            Some(words) => Err(format!("says {words:?}: {shown}")),
            None => Ok(()),
        }
    }
}

/// Where input comes in.
pub trait Front {
    /// What is sent there.
    type Input;

    /// What it is called in the output.
    fn name(&self) -> &str;

    /// Longest it may take over one case.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Sends it, and waits for what comes back.
    async fn send(&self, input: &Self::Input) -> Answer;
}

/// Runs `table` against `front` and checks every answer, and what it cost `processes`.
///
/// # Errors
/// The rows that failed; all were tried.
pub async fn run<F: Front>(
    front: &F,
    table: &[Case<F::Input>],
    processes: &[&Process],
) -> Result<(), String> {
    let before: Vec<Before<'_>> = processes.iter().map(|process| Before::of(process)).collect();
    let (mut failed, mut slowest) = (Vec::new(), Duration::ZERO);
    for case in table {
        let started = Instant::now();
        let patience = front.patience();
        let outcome = match timeout(patience, front.send(&case.input)).await {
            Ok(answer) => case.expect.check(&answer),
            Err(_) => Err(format!("no answer within {patience:?}")),
        };
        slowest = slowest.max(started.elapsed());
        if let Err(why) = outcome {
            say(&format!("{} against {} failed: {why}", case.what, front.name()));
            failed.push(format!("{} {}: {why}", case.class, case.what));
        }
    }
    let budget = Budget { memory: MEMORY, log: LOG * table.len() };
    let mut costs = Vec::new();
    for spent in before.iter().map(|before| before.spent(budget)) {
        match spent {
            Ok(cost) => costs.push(cost),
            Err(broken) => failed.push(broken),
        }
    }
    let tried = tally(table);
    tried.tell(front.name(), slowest, &costs.join(", "));
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("{} of {} against {}:\n{}\n", failed.len(), table.len(), front.name(), failed.join("\n")))
}

/// Panics with everything that failed in any table of a test.
pub fn all_right(outcomes: impl IntoIterator<Item = Result<(), String>>) {
    let failed: String = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{failed}");
}

/// The cases of a table by class.
pub fn tally<I>(table: &[Case<I>]) -> Tally {
    Tally::of(table.iter().map(|case| case.class))
}
