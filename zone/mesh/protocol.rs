//! What a service speaks, as far as the proxy cares.

use std::fmt;

use common::model::labels;
use std::collections::BTreeMap;

/// An application protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Protocol {
    /// Not said, or a name we do not know: bytes.
    #[default]
    Unknown,
    /// Bytes.
    Tcp,
    /// Kafka, carried as bytes.
    Kafka,
    /// HTTP/1.1.
    Http,
    /// HTTP/2.
    Http2,
    /// gRPC over HTTP/2.
    Grpc,
}

impl Protocol {
    /// From its name in tags and specs.
    pub fn parse(name: &str) -> Self {
        match name {
            "tcp" => Self::Tcp,
            "kafka" => Self::Kafka,
            "http" => Self::Http,
            "http2" => Self::Http2,
            "grpc" => Self::Grpc,
            _ => Self::Unknown,
        }
    }

    /// From the protocol tag of an inbound or a service.
    pub fn of_tags(tags: &BTreeMap<String, String>) -> Self {
        tags.get(labels::TAG_PROTOCOL).map_or(Self::Unknown, |name| Self::parse(name))
    }

    /// Whether requests can be routed one by one.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2 | Self::Grpc)
    }

    /// Itself and what it can be reduced to, most capable first.
    fn stack(self) -> &'static [Self] {
        match self {
            Self::Grpc => &[Self::Grpc, Self::Http2, Self::Tcp],
            Self::Http2 => &[Self::Http2, Self::Tcp],
            Self::Http => &[Self::Http, Self::Tcp],
            Self::Kafka => &[Self::Kafka, Self::Tcp],
            Self::Tcp => &[Self::Tcp],
            Self::Unknown => &[],
        }
    }

    /// What endpoints of both protocols understand.
    pub fn common_with(self, other: Self) -> Self {
        if self == other {
            return self;
        }
        let shared = self.stack().iter().find(|p| other.stack().contains(p));
        shared.copied().unwrap_or(Self::Unknown)
    }

    /// What all of them understand; unknown when there are none.
    pub fn common(protocols: impl IntoIterator<Item = Self>) -> Self {
        protocols.into_iter().reduce(Self::common_with).unwrap_or_default()
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Tcp => "tcp",
            Self::Kafka => "kafka",
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Grpc => "grpc",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Protocol::{self, Grpc, Http, Http2, Kafka, Tcp, Unknown};

    #[test]
    fn mixed_endpoints_fall_back_to_what_all_speak() {
        let check = |all: &[Protocol], expected| {
            assert_eq!(Protocol::common(all.iter().copied()), expected, "{all:?}");
        };
        check(&[], Unknown);
        check(&[Http, Http], Http);
        check(&[Http2, Grpc], Http2);
        check(&[Grpc, Http2, Grpc], Http2);
        check(&[Http, Http2], Tcp);
        check(&[Kafka, Http], Tcp);
        check(&[Http, Unknown], Unknown);
        check(&[Unknown, Tcp], Unknown);
    }
}
