//! Failures that are told when they happen: the test runner prints what a test said only when all have ended,
//! and whoever reads a log that was cut off before that shall know why all the same.

use std::{io::Write, panic, sync::Once, thread};

/// Longest reason, in characters: a failed comparison can be pages.
const LONGEST: usize = 2000;

/// From now on a panic is one line on standard error as well, past the capture of the test runner.
pub fn are_told_at_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let thread = thread::current();
            let at = panic.location().map(ToString::to_string).unwrap_or_default();
            let why: String = panic.payload_as_str().unwrap_or("unknown").chars().take(LONGEST).collect();
            let who = thread.name().unwrap_or("a task");
            let line = format!("PANIC {who} at {at}: {}\n", why.replace('\n', " "));
            let _nobody_listens = std::io::stderr().write_all(line.as_bytes());
            usual(panic);
        }));
    });
}
