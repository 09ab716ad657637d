//! How large the table is.

use super::{commands, content, handshakes, identity, proxies, requests, rest, start, tokens, zones};
use crate::{
    doors::{flood, slow},
    harness::tally::{Class, Tally, say},
};

/// Fewest cases of each class, over all fronts.
const LEAST: [(Class, usize); Class::ALL.len()] = [
    (Class::Certificates, 12),
    (Class::Tokens, 16),
    (Class::Identity, 140),
    (Class::Rights, 40),
    (Class::Conversation, 35),
    (Class::Sizes, 12),
    (Class::Compression, 14),
    (Class::Frames, 12),
    (Class::Slowness, 9),
    (Class::Churn, 6),
    (Class::Content, 60),
    (Class::State, 20),
    (Class::Proxies, 20),
    (Class::Callers, 40),
    (Class::Startup, 25),
];

#[test]
fn the_table_is_as_large_as_promised_in_every_class() {
    let mut all = Tally::default();
    for count in [
        handshakes::count(),
        tokens::count(),
        identity::count(),
        zones::count(),
        flood::count(),
        slow::count(),
        content::count(),
        rest::count(),
        proxies::count(),
        requests::count(),
        commands::count(),
        start::count(),
    ] {
        all.join(&count);
    }
    say(&all.to_string());
    for class in Class::ALL {
        let promised = LEAST.iter().find(|(promised, _)| *promised == class);
        let (_, least) = promised.unwrap_or_else(|| panic!("nothing is promised of {class}"));
        assert!(all.count(class) >= *least, "fewer than {least} of {class}: {all}");
    }
    assert!(all.total() >= 300, "{all}");
}
