//! How many connections a process keeps, of whom, and for how long.

use serde::{Deserialize, Serialize};

use super::{ConfigError, Interval};
use crate::runtime::http::Limits;

/// A client that may keep a connection for longer than this has no deadline in practice.
const LONGEST: Interval = Interval::seconds(24 * 60 * 60);

/// `general.connections`: the same for every listener.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConnectionsSection {
    /// Connections of all listeners together; 0: as many as the limit of open files allows.
    pub max: usize,
    /// Connections of one listener whose clients have not shown who they are.
    pub unknown: usize,
    /// The same from one address.
    pub unknown_per_address: usize,
    /// Time for the first request, TLS included.
    pub first_request_timeout: Interval,
    /// Longest exchange with a client that has not shown who it is.
    pub request_timeout: Interval,
    /// How long a connection is kept without a request.
    pub idle_timeout: Interval,
}

impl Default for ConnectionsSection {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            max: 0,
            unknown: limits.unknown,
            unknown_per_address: limits.unknown_per_address,
            first_request_timeout: Interval(limits.first_request),
            request_timeout: Interval(limits.request),
            idle_timeout: Interval(limits.idle),
        }
    }
}

impl ConnectionsSection {
    /// The limits of a listener with this share of the connections.
    pub fn limits(&self, connections: usize) -> Limits {
        let limits = Limits {
            unknown: self.unknown,
            unknown_per_address: self.unknown_per_address,
            first_request: self.first_request_timeout.0,
            request: self.request_timeout.0,
            idle: self.idle_timeout.0,
            unread: self.request_timeout.0.min(Limits::default().unread),
            ..Limits::default()
        };
        limits.for_connections(connections)
    }

    /// Nobody could connect with nothing.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let at_least = |path: &str, fine: bool, least: &str| {
            let reason = || format!("must be at least {least}, or nobody can connect");
            if fine {
                Ok(())
            } else {
                Err(ConfigError::rule(&format!("general.connections.{path}"), reason()))
            }
        };
        at_least("max", self.max == 0 || self.max >= 16, "16 (or 0 for what the system allows)")?;
        at_least("unknown", self.unknown >= 1, "1")?;
        at_least("unknownPerAddress", self.unknown_per_address >= 1, "1")?;
        let timeouts = [
            ("firstRequestTimeout", self.first_request_timeout),
            ("requestTimeout", self.request_timeout),
            ("idleTimeout", self.idle_timeout),
        ];
        timeouts.into_iter().try_for_each(|(path, timeout)| {
            at_least(path, timeout >= Interval::millis(100), "100ms")?;
            if timeout <= LONGEST {
                return Ok(());
            }
            let reason =
                format!("must be at most {LONGEST}, or connections that nobody uses are never closed");
            Err(ConfigError::rule(&format!("general.connections.{path}"), reason))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_deadline_is_neither_at_once_nor_never() {
        let set: [fn(&mut ConnectionsSection) -> &mut Interval; 3] =
            [|c| &mut c.first_request_timeout, |c| &mut c.request_timeout, |c| &mut c.idle_timeout];
        for timeout in set {
            let check = |text: &str| {
                let mut connections = ConnectionsSection::default();
                *timeout(&mut connections) = Interval::parse(text).unwrap();
                connections.validate().map_err(|error| error.to_string())
            };
            assert_eq!(check("100ms"), Ok(()));
            assert_eq!(check("24h"), Ok(()));
            assert!(check("99ms").unwrap_err().contains("at least 100ms"));
            assert!(check("2562047h").unwrap_err().contains("at most 24h0m0s"));
        }
    }
}
