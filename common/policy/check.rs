//! Rules about values that several policies share.

use std::sync::LazyLock;

use regex::Regex;

use super::{Duration, IntOrString};
use crate::model::{FieldPath, Violations};

/// A section that must say something.
pub(super) const NOT_EMPTY: &str = "must not be empty";
/// A member that must be there.
pub(super) const DEFINED: &str = "must be defined";
/// A member that must not be there.
pub(super) const NOT_DEFINED: &str = "must not be defined";
/// What exists before a client is known.
pub(super) const OF_CLIENT: &str = "can't be specified when matches contain spiffeID because this field cannot be conditioned on source identity";
/// A number or duration that must be positive.
pub(super) const POSITIVE: &str = "has to be greater than zero";

/// Violations found so far, with the checks policies have in common.
pub(super) trait Checks {
    /// A duration that, when set, must be positive.
    fn positive(&mut self, path: FieldPath, value: Option<Duration>);
    /// A duration that, when set, must not be negative.
    fn not_negative(&mut self, path: FieldPath, value: Option<Duration>);
    /// A number that, when set, must not be zero.
    fn above_zero(&mut self, path: FieldPath, value: Option<u32>);
    /// A whole percentage, when set.
    fn percent(&mut self, path: FieldPath, value: Option<u32>);
    /// A percentage that may have decimals, when set.
    fn decimal_percent(&mut self, path: FieldPath, value: Option<&IntOrString>);
    /// A status of an HTTP response.
    fn status(&mut self, path: FieldPath, value: i64);
    /// A member that must not be set here, for this reason.
    fn absent<T>(&mut self, path: FieldPath, value: Option<&T>, reason: &str);
    /// The name of a header, which is written in lower case.
    fn header_name(&mut self, path: FieldPath, name: &str);
    /// The names of headers that are set or added.
    fn header_names<'a>(&mut self, path: &FieldPath, names: impl ExactSizeIterator<Item = &'a str>);
    /// A list of so many items at most.
    fn at_most(&mut self, path: FieldPath, count: usize, most: usize);
}

/// Headers that one policy may change in one way.
pub(super) const MOST_HEADERS: usize = 16;
/// Longest name of a header, in characters.
const LONGEST_NAME: usize = 256;

impl Checks for Violations {
    fn positive(&mut self, path: FieldPath, value: Option<Duration>) {
        let broken = value.is_some_and(|v| v.is_zero() || v.is_negative());
        self.check(broken, path, "must be greater than zero when defined");
    }

    fn not_negative(&mut self, path: FieldPath, value: Option<Duration>) {
        self.check(value.is_some_and(Duration::is_negative), path, "must not be negative when defined");
    }

    fn above_zero(&mut self, path: FieldPath, value: Option<u32>) {
        self.check(value == Some(0), path, "must be greater than 0");
    }

    fn percent(&mut self, path: FieldPath, value: Option<u32>) {
        self.check(value.is_some_and(|v| v > 100), path, "must be in inclusive range [0, 100]");
    }

    fn decimal_percent(&mut self, path: FieldPath, value: Option<&IntOrString>) {
        match value.map(IntOrString::value) {
            None => {}
            Some(None) => self.add(path, "string must be a valid number"),
            Some(Some(v)) => {
                self.check(!(0.0..=100.0).contains(&v), path, "must be in inclusive range [0.0, 100.0]");
            }
        }
    }

    fn status(&mut self, path: FieldPath, value: i64) {
        self.check(!(100..600).contains(&value), path, "must be in inclusive range [100, 599]");
    }

    fn absent<T>(&mut self, path: FieldPath, value: Option<&T>, reason: &str) {
        self.check(value.is_some(), path, reason);
    }

    fn header_name(&mut self, path: FieldPath, name: &str) {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() {
            self.add(path, "in body should be at least 1 chars long");
        } else if name.chars().count() > LONGEST_NAME {
            self.add(path, format!("in body should be at most {LONGEST_NAME} chars long"));
        } else if !name.chars().all(known) {
            self.add(path, r"in body should match '^[a-z0-9!#$%&'*+\-.^_\x60|~]+$'");
        }
    }

    fn header_names<'a>(&mut self, path: &FieldPath, names: impl ExactSizeIterator<Item = &'a str>) {
        self.at_most(path.clone(), names.len(), MOST_HEADERS);
        for (i, name) in names.enumerate() {
            self.header_name(path.index(i).field("name"), name);
        }
    }

    fn at_most(&mut self, path: FieldPath, count: usize, most: usize) {
        self.check(count > most, path, format!("in body should have at most {most} items"));
    }
}

/// Whether this is an absolute path of a file, on whichever system.
pub(super) fn is_file(path: &str) -> bool {
    static FILE: LazyLock<Regex> = LazyLock::new(|| {
        let drive = r#"[a-zA-Z]:\\(?:[^\\/:*?"<>|\r\n]+\\)*[^\\/:*?"<>|\r\n]*"#;
        Regex::new(&format!(r"^(?:/[^\x00]*|{drive})$")).expect("the expression is valid")
    });
    FILE.is_match(path)
}
