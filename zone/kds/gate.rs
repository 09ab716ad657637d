//! Whether to obey an upstream, judged from the history it shows. Pure.

use common::kds::headers::Upstream;
use uuid::Uuid;

/// How to follow an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Its history goes on where it stood: differences suffice, and what it names as gone is gone.
    Resume,
    /// Its history is new here: what it lacks passes the fuse first.
    Guarded,
    /// It is not the upstream that was followed so far; the text says why.
    Refuse(String),
}

/// How far a history was followed, of what was `written` down and what was `seen` since.
pub(super) fn newest(written: Option<Upstream>, seen: Option<Upstream>) -> Option<Upstream> {
    let at = |upstream: &Upstream| (upstream.epoch, upstream.revision);
    let is_newer = |seen: &Upstream| {
        written.is_none_or(|written| written.store_id != seen.store_id || at(seen) > at(&written))
    };
    seen.filter(is_newer).or(written)
}

/// Decides about an upstream that shows `shown`, after one that showed `known`. `accepted` is an
/// operator's word for a store.
pub(super) fn decide(known: Option<Upstream>, shown: Option<Upstream>, accepted: Option<Uuid>) -> Decision {
    let (Some(known), Some(shown)) = (known, shown) else { return Decision::Guarded };
    if shown.store_id != known.store_id {
        if accepted == Some(shown.store_id) {
            return Decision::Guarded;
        }
        return Decision::Refuse(format!(
            "global shows store {}, but this zone follows store {}; what it holds is kept until an operator accepts the new store",
            shown.store_id, known.store_id
        ));
    }
    if shown.epoch < known.epoch || (shown.epoch == known.epoch && shown.revision < known.revision) {
        return Decision::Refuse(format!(
            "global went back from epoch {} revision {} to epoch {} revision {}: it was restored from a backup without a new epoch; what this zone holds is kept until an operator accepts that",
            known.epoch, known.revision, shown.epoch, shown.revision
        ));
    }
    if shown.epoch > known.epoch { Decision::Guarded } else { Decision::Resume }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_counts_beside_what_was_written() {
        let at = |store: u128, epoch, revision| {
            Some(Upstream { store_id: Uuid::from_u128(store), epoch, revision })
        };
        for (written, seen, expected) in [
            (None, None, None),
            (at(1, 1, 5), None, at(1, 1, 5)),
            (None, at(1, 1, 5), at(1, 1, 5)),
            (at(1, 1, 5), at(1, 1, 6), at(1, 1, 6)),
            (at(1, 2, 5), at(1, 1, 6), at(1, 2, 5)),
            (at(1, 1, 9), at(2, 1, 1), at(2, 1, 1)),
        ] {
            assert_eq!(newest(written, seen), expected, "{written:?} {seen:?}");
        }
    }

    #[test]
    fn an_upstream_is_obeyed_while_its_history_goes_on() {
        let at = |store: u128, epoch, revision| {
            Some(Upstream { store_id: Uuid::from_u128(store), epoch, revision })
        };
        let check = |known, shown, accepted: Option<u128>, expected: &str| {
            let got = match decide(known, shown, accepted.map(Uuid::from_u128)) {
                Decision::Resume => "resume",
                Decision::Guarded => "guarded",
                Decision::Refuse(_) => "refuse",
            };
            assert_eq!(got, expected, "{known:?} then {shown:?}");
        };
        check(None, at(1, 1, 5), None, "guarded");
        check(at(1, 1, 5), None, None, "guarded");
        check(at(1, 1, 5), at(1, 1, 5), None, "resume");
        check(at(1, 1, 5), at(1, 1, 9), None, "resume");
        check(at(1, 1, 5), at(1, 1, 4), None, "refuse");
        check(at(1, 2, 5), at(1, 1, 9), None, "refuse");
        check(at(1, 1, 5), at(1, 2, 1), None, "guarded");
        check(at(1, 1, 5), at(2, 1, 9), None, "refuse");
        check(at(1, 1, 5), at(2, 1, 9), Some(2), "guarded");
        check(at(1, 1, 5), at(2, 1, 9), Some(3), "refuse");
    }
}
