//! How large the table is.

use super::{commands, content, handshakes, identity, proxies, requests, rest, start, tokens, zones};
use crate::{
    doors::flood,
    harness::tally::{
        Class::{self, B1, B2, B3, B4, B5, B6, B7, B8, B11, B12, B13, B14, B15},
        Tally, say,
    },
};

/// Fewest cases of a class. What is slow and what comes and goes is counted in connections, in `doors`.
const LEAST: [(Class, usize); 13] = [
    (B1, 12),
    (B2, 16),
    (B3, 140),
    (B4, 40),
    (B5, 35),
    (B6, 12),
    (B7, 4),
    (B8, 4),
    (B11, 60),
    (B12, 16),
    (B13, 20),
    (B14, 40),
    (B15, 25),
];

#[test]
fn the_table_is_as_large_as_promised() {
    let mut all = Tally::default();
    for count in [
        handshakes::count(),
        tokens::count(),
        identity::count(),
        zones::count(),
        flood::count(),
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
    for (class, least) in LEAST {
        assert!(all.count(class) >= least, "fewer than {least} of {class}: {all}");
    }
    assert!(all.total() >= 300, "{all}");
}
