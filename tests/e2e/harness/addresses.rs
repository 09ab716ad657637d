//! Ports and loopback addresses that no other test uses.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, TcpListener},
    sync::{
        Mutex,
        atomic::{AtomicU16, Ordering},
    },
};

/// A loopback address of its own: proxies of a mesh need different addresses, and every address has all
/// ports to itself.
pub fn loopback() -> Ipv4Addr {
    static NEXT: AtomicU16 = AtomicU16::new(2);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = n.to_be_bytes();
    // The process id keeps two runs on one machine apart.
    let run = u8::try_from(std::process::id() % 200).expect("below 200") + 10;
    Ipv4Addr::new(127, run, high, low)
}

/// A port that is free on `address` now, and that no other test of this run is given. Another process could
/// take it before it is used; with an address of its own none does.
pub fn free_port(address: Ipv4Addr) -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind((IpAddr::V4(address), 0)).expect("loopback has free ports");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        if GIVEN.lock().expect("nobody panics with it").insert(port) {
            return port;
        }
    }
}
