//! What distinguishes one proxy from another in what is otherwise made for many: its service in the format of an access
//! log, its tags in a header.
//!
//! Resources that many share hold a marker wherever such a text belongs, and a [template](super::template) puts in the
//! text of a proxy when it is told. So a mesh that logs who calls makes no resource for each pair of caller and
//! called.

use common::xds::Version;

/// Something about one proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Particular {
    /// The service by which it is known.
    Service,
    /// Its address.
    Address,
    /// The same as it stands before a port.
    Host,
    /// The identifier of its workload.
    Workload,
    /// The pipe by which whoever runs it takes lines.
    LogPipe,
    /// The tags it tells whom it calls.
    Tags,
}

/// The noncharacters around what names a particular, U+10FFFE and U+10FFFF. No name, tag or address holds them, and a
/// policy that did would only get the text of the proxy there.
pub(super) const OPENING: &[u8] = "\u{10fffe}".as_bytes();
const CLOSING: &[u8] = "\u{10ffff}".as_bytes();
/// Bytes of a marker.
pub(super) const MARKER: usize = OPENING.len() + 1 + CLOSING.len();

impl Particular {
    const ALL: [Self; 6] =
        [Self::Service, Self::Address, Self::Host, Self::Workload, Self::LogPipe, Self::Tags];

    /// What stands for its text in resources that many share.
    pub(crate) fn marker(self) -> &'static str {
        match self {
            Self::Service => "\u{10fffe}s\u{10ffff}",
            Self::Address => "\u{10fffe}a\u{10ffff}",
            Self::Host => "\u{10fffe}h\u{10ffff}",
            Self::Workload => "\u{10fffe}w\u{10ffff}",
            Self::LogPipe => "\u{10fffe}p\u{10ffff}",
            Self::Tags => "\u{10fffe}t\u{10ffff}",
        }
    }

    /// The one whose marker begins here.
    pub(super) fn marked(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|particular| text.starts_with(particular.marker().as_bytes()))
    }
}

/// Texts of one proxy for the markers of particulars, each with its version, in the order of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Particulars([Option<(String, Version)>; Particular::ALL.len()]);

impl Particulars {
    /// Takes a text over and gives its marker, unless the text means something where it will stand: then it has to be
    /// there while the resource is made, and is given back.
    pub(crate) fn abstracted(&mut self, particular: Particular, text: String) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:/&=,@+~[]".contains(c);
        if text.is_empty() || !text.chars().all(is_plain) {
            return text;
        }
        // What it stands for counts, or two that are the same would come to nothing.
        let version = Version::of_parts([particular.marker().as_bytes(), text.as_bytes()]);
        self.0[particular as usize] = Some((text, version));
        particular.marker().to_owned()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The text for one marker. One that nobody gave stays empty.
    pub(super) fn text(&self, particular: Particular) -> &str {
        self.0[particular as usize].as_ref().map_or("", |(text, _)| text)
    }

    /// The version of what is made with these of a template with `version`.
    pub(super) fn version(&self, version: Version, of: impl IntoIterator<Item = Particular>) -> Version {
        let texts = of.into_iter().filter_map(|particular| self.0[particular as usize].as_ref());
        texts.fold(version, |version, (_, of_text)| version.with(*of_text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_marker_is_told_from_every_other() {
        for particular in Particular::ALL {
            let marker = particular.marker();
            assert_eq!((marker.len(), Particular::marked(marker.as_bytes())), (MARKER, Some(particular)));
        }
        assert_eq!(Particular::marked("\u{10fffe}z\u{10ffff}".as_bytes()), None);
    }

    #[test]
    fn a_text_that_means_something_to_envoy_is_no_particular() {
        let mut particulars = Particulars::default();
        for odd in ["", "50%", "%REQ(a)%", "\"", "a b", "\u{10fffe}s\u{10ffff}", "é"] {
            assert_eq!(particulars.abstracted(Particular::Service, odd.to_owned()), odd);
        }
        assert!(particulars.is_empty());
        assert_eq!(particulars.abstracted(Particular::Host, "[::1]".to_owned()), Particular::Host.marker());
        assert_eq!(particulars.text(Particular::Host), "[::1]");
    }
}
