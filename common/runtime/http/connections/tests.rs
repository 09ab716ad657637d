#![allow(clippy::unwrap_used)]

use super::{super::progress::Over, *};

fn peer(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], port))
}

fn connections(limits: Limits) -> Arc<Connections> {
    Connections::new("test", limits, TaskTracker::new())
}

fn small() -> Limits {
    Limits {
        connections: 8,
        unknown: 4,
        unknown_per_address: 2,
        per_peer: 3,
        per_share: 4,
        ..Limits::default()
    }
}

fn displaced(seat: &Seat) -> bool {
    seat.guest.is_displaced()
}

#[test]
fn an_address_displaces_its_own_first() {
    let connections = connections(small());
    let now = Instant::now();
    let healthy = connections.enter(peer(1, 1), now).unwrap();
    let silent: Vec<_> = (0..20).map(|port| connections.enter(peer(2, port), now).unwrap()).collect();
    assert!(!displaced(&healthy));
    assert_eq!(silent.iter().filter(|seat| !displaced(seat)).count(), 2);
    assert!(!displaced(silent.last().unwrap()), "the newest stays");
}

#[test]
fn a_full_listener_displaces_who_waits_longest_and_never_the_known() {
    let connections = connections(small());
    let now = Instant::now();
    let zone = connections.enter(peer(1, 1), now).unwrap();
    zone.vouch("zone-1", None);
    let asked = connections.enter(peer(2, 1), now).unwrap();
    let request = asked.guest.progress().asked(false, now);
    asked.guest.progress().arrived(request);
    let kept = connections.enter(peer(3, 1), now).unwrap();
    let before = kept.guest.progress().asked(false, now);
    kept.guest.progress().answered(before, true, now);
    let silent: Vec<_> = (10..30).map(|last| connections.enter(peer(last, 1), now).unwrap()).collect();
    assert!(!displaced(&zone) && !displaced(&asked) && !displaced(&kept));
    assert_eq!(silent.iter().filter(|seat| !displaced(seat)).count(), 2);
    drop(silent);
    let inner = connections.lock();
    assert_eq!((inner.total, inner.leaving, inner.unknown.len()), (3, 0, 2));
}

#[test]
fn who_leaves_answers_lying_is_cut_off_and_who_takes_them_is_not() {
    let connections = connections(Limits { answers: 1000, ..Limits::default() });
    let start = Instant::now();
    let later = start + std::time::Duration::from_secs(1);
    let hold = |seat: &Seat, bytes, now| connections.hold(&seat.guest, bytes, now);
    let honest = connections.enter(peer(1, 1), start).unwrap();
    let taken = hold(&honest, 300, start);
    let lying: Vec<_> = (0..20).map(|port| connections.enter(peer(2, port), start).unwrap()).collect();
    let mut held = Vec::new();
    for seat in &lying {
        held.push(hold(seat, 100, later));
        assert!(connections.ready.bytes() <= 1000);
    }
    assert_eq!(lying.iter().filter(|seat| displaced(seat)).count(), 13);
    assert!(!displaced(&honest), "another address leaves more lying");
    drop((taken, held));
    assert_eq!(connections.ready.bytes(), 0);
    let alone = hold(&honest, 5000, later);
    assert!(alone.is_some() && !displaced(&honest), "one that is longer is given");
    let _second = hold(&honest, 5000, later);
    assert!(displaced(&honest) && connections.ready.bytes() == 0);
}

#[test]
fn a_crowd_that_takes_no_answers_makes_way_for_itself_and_for_everybody_else() {
    let limits = Limits { connections: 32, unknown: 16, unknown_per_address: 8, ..Limits::default() };
    let (connections, now) = (connections(limits), Instant::now());
    let deaf = |last: u8, port: u16| {
        let seat = connections.enter(peer(last, port), now).unwrap();
        let request = seat.guest.progress().asked(false, now);
        seat.guest.progress().arrived(request);
        seat.guest.progress().offered(request, Some(now));
        let held = connections.hold(&seat.guest, 100, now);
        (seat, held)
    };
    let mut crowd: Vec<_> = (0..16).map(|n| deaf(10 + n % 4, u16::from(n))).collect();
    // Both have just come and are about to ask.
    let honest = [3, 4].map(|last| connections.enter(peer(last, 1), now).unwrap());
    crowd.extend((16..48).map(|n| deaf(10 + n % 4, u16::from(n))));
    let another = connections.enter(peer(5, 1), now).unwrap();
    assert!(!honest.iter().any(displaced) && !displaced(&another));
    assert_eq!(crowd.iter().filter(|(seat, _)| !displaced(seat)).count(), 13);
    let unread_for_long = now + SILENT;
    let next: Vec<_> =
        (6..9).map(|last| connections.enter(peer(last, 1), unread_for_long).unwrap()).collect();
    assert!(!next.iter().chain(&honest).any(displaced), "their requests may lie here unread");
    assert_eq!(crowd.iter().filter(|(seat, _)| !displaced(seat)).count(), 10);
}

#[test]
fn a_crowd_whose_answers_the_system_took_makes_way_for_who_has_just_connected() {
    let limits = Limits { connections: 32, unknown: 16, unknown_per_address: 8, ..Limits::default() };
    let (connections, now) = (connections(limits), Instant::now());
    let idle = |last: u8, port: u16| {
        let seat = connections.enter(peer(last, port), now).unwrap();
        let request = seat.guest.progress().asked(false, now);
        seat.guest.progress().arrived(request);
        seat.guest.progress().answered(request, true, now);
        seat
    };
    let crowd: Vec<_> = (0..16).map(|n| idle(10 + n % 4, u16::from(n))).collect();
    let honest: Vec<_> = (0..4).map(|last| connections.enter(peer(last, 1), now).unwrap()).collect();
    assert!(!honest.iter().any(displaced), "they are about to ask");
    assert_eq!(crowd.iter().filter(|seat| !displaced(seat)).count(), 12);
}

#[test]
fn those_who_wait_for_news_make_way_and_nobody_who_is_alone_does() {
    let limits = Limits { connections: 32, unknown: 16, unknown_per_address: 8, ..Limits::default() };
    for addresses in [3, 9, 14] {
        let (connections, now) = (connections(limits.clone()), Instant::now());
        let waits = |last: u8, port: u16| {
            let seat = connections.enter(peer(last, port), now).unwrap();
            let request = seat.guest.progress().asked(false, now);
            seat.guest.progress().arrived(request);
            let parked = seat.guest.park();
            (seat, parked)
        };
        let alone = waits(1, 1);
        let crowd: Vec<_> = (0..60).map(|n| waits(10 + n % addresses, u16::from(n))).collect();
        let newcomer = waits(2, 1);
        assert!(!displaced(&alone.0) && !displaced(&newcomer.0), "{addresses}");
        let left = crowd.iter().filter(|(seat, _)| !displaced(seat)).count();
        assert!((8..=14).contains(&left), "{addresses}: {left}");
    }
}

#[test]
fn without_a_crowd_who_says_nothing_goes_first() {
    let limits = Limits { unknown: 8, ..Limits::default() };
    let (connections, now) = (connections(limits), Instant::now());
    let mut held = Vec::new();
    for last in 0..7 {
        let seat = connections.enter(peer(last, 1), now).unwrap();
        let request = seat.guest.progress().asked(false, now);
        seat.guest.progress().arrived(request);
        held.push((connections.hold(&seat.guest, 100, now), seat));
    }
    let silent = connections.enter(peer(7, 1), now).unwrap();
    let _next = connections.enter(peer(8, 1), now + SILENT).unwrap();
    assert!(displaced(&silent) && !held.iter().any(|(_, seat)| displaced(seat)));
}

#[test]
fn who_works_is_not_displaced_and_the_newcomer_is_refused() {
    let connections = connections(small());
    let now = Instant::now();
    let working: Vec<_> = (0..2)
        .map(|port| {
            let seat = connections.enter(peer(1, port), now).unwrap();
            let request = seat.guest.progress().asked(false, now);
            seat.guest.progress().arrived(request);
            seat
        })
        .collect();
    assert_eq!(connections.enter(peer(1, 9), now).err(), Some(Reason::Address));
    assert!(connections.enter(peer(2, 1), now).is_ok(), "another address has room");
    drop(working);
    assert!(connections.enter(peer(1, 9), now).is_ok());
}

#[test]
fn known_clients_may_take_everything_but_no_single_one() {
    let connections = connections(small());
    let now = Instant::now();
    let mut seats = Vec::new();
    for (number, zone) in ["a", "b", "c"].iter().enumerate() {
        for port in 0..3_u16 {
            let Ok(seat) = connections.enter(peer(u8::try_from(number).unwrap(), port), now) else {
                continue;
            };
            seat.vouch(zone, None);
            seats.push(seat);
        }
    }
    assert_eq!(seats.len(), 8);
    assert_eq!(connections.enter(peer(9, 1), now).err(), Some(Reason::Full));
    seats.truncate(3);
    let fourth = connections.enter(peer(9, 1), now).unwrap();
    fourth.vouch("a", None);
    assert!(connections.lock().unknown.contains_key(&fourth.number), "its fourth counts as unknown");
}

#[test]
fn names_that_a_token_makes_up_fill_no_more_than_its_share() {
    let (connections, now) = (connections(small()), Instant::now());
    let known = |last: u8, n: u16, token: &str| {
        let seat = connections.enter(peer(last, n), now).unwrap();
        seat.vouch(&format!("proxy-{last}-{n}"), Some(token));
        seat
    };
    // From many addresses with one token, and from one address with many tokens.
    let stolen: Vec<_> = (0..7).map(|n| known(n, 1, "stolen")).collect();
    assert_eq!(stolen.iter().filter(|seat| seat.is_known()).count(), 4);
    drop(stolen);
    let tokens: Vec<_> = (0..7).map(|n| known(1, n, &format!("token-{n}"))).collect();
    assert_eq!(tokens.iter().filter(|seat| seat.is_known()).count(), 4);
    assert!(known(2, 1, "honest").is_known());
    drop(tokens);
    assert!(connections.lock().known.is_empty(), "who left counts no more");
}

#[test]
fn five_hundred_zones_may_sit_behind_one_address() {
    let limits = Limits::default().for_connections(10_000).keeping_room_for_the_known();
    let (connections, now) = (connections(limits), Instant::now());
    // All of them come at once, with two connections each, and only then show who they are.
    let zones: Vec<_> = (0..1000).map(|port| connections.enter(peer(1, port), now).unwrap()).collect();
    for (n, seat) in zones.iter().enumerate() {
        seat.vouch(&format!("zone-{}", n / 2), None);
    }
    // Whoever else is at that address waits at its own expense.
    let strangers: Vec<_> = (0..5000).map(|port| connections.enter(peer(1, port), now).unwrap()).collect();
    assert!(!zones.iter().any(displaced));
    assert_eq!(strangers.iter().filter(|seat| !displaced(seat)).count(), 1024);
}

#[test]
fn a_network_of_64_bits_is_one_address() {
    let of = |text: &str| network(text.parse().unwrap());
    assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::2"));
    assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_connection() {
    let connections = connections(small());
    let start = Instant::now();
    let seat = connections.enter(peer(1, 1), start).unwrap();
    let over = seat.guest.over(&connections.limits).await;
    assert_eq!(over, Some(Over::Refused(Reason::NoRequest)));
    assert_eq!(start.elapsed(), connections.limits.first_request / 2);
}

#[tokio::test]
async fn nothing_long_is_begun_while_those_who_made_way_hold_too_much() {
    let connections = connections(Limits { answers: 1000, ..Limits::default() });
    let now = Instant::now();
    let [gone, displaced_one, other] = [1, 2, 3].map(|last| connections.enter(peer(last, 1), now).unwrap());
    let hold = |seat: &Seat, bytes| connections.hold(&seat.guest, bytes, now);
    let of_gone = hold(&gone, 600);
    drop(gone);
    assert_eq!(connections.ready.bytes(), 0, "who left lets nobody else make way");
    let of_displaced = hold(&displaced_one, 900);
    let _of_other = hold(&other, 500);
    assert!(displaced(&displaced_one) && !displaced(&other));
    assert_eq!(connections.turn(&displaced_one.guest).await.err(), Some(Crowded));
    let mut turn = std::pin::pin!(connections.turn(&other.guest));
    assert!(futures::poll!(turn.as_mut()).is_pending());
    drop(of_displaced);
    assert!(futures::poll!(turn.as_mut()).is_pending(), "500 and 600 are too much as well");
    drop(of_gone);
    assert!(turn.await.is_ok());
}
