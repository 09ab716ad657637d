//! How large the table is.

use super::{commands, content, handshakes, identity, proxies, requests, rest, start, tokens, zones};
use crate::harness::tally::{Tally, say};

/// Fewest cases altogether.
const LEAST: usize = 300;

#[test]
fn the_table_is_as_large_as_promised() {
    let mut all = Tally::default();
    for count in [
        commands::count(),
        content::count(),
        handshakes::count(),
        tokens::count(),
        identity::count(),
        proxies::count(),
        requests::count(),
        rest::count(),
        start::count(),
        zones::count(),
    ] {
        all.join(&count);
    }
    say(&all.to_string());
    assert!(all.total() >= LEAST, "{all}");
}
