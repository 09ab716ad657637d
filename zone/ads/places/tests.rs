#![allow(clippy::unwrap_used)]
use std::{
    future::{pending, ready},
    pin::pin,
};

use futures::poll;

use super::*;
use crate::ads::node::ProxyKind;

fn at(last: u8) -> Option<IpAddr> {
    Some(Ipv4Addr::new(10, 0, 0, last).into())
}

fn proxy(name: &str) -> ProxyId {
    ProxyId::new(ProxyKind::Dataplane, "default", name)
}

/// The place of a stream that says something at once.
fn speaks(
    places: &Arc<StreamPlaces>,
    from: Option<IpAddr>,
    credential: Option<&str>,
) -> Result<StreamPlace, NoPlace> {
    let mut place = places.take(from, credential)?;
    place.spoke().map(|()| place)
}

fn makes_way(place: &StreamPlace) -> bool {
    matches!(&place.state, PlaceState::Silent { gives_way, .. } if gives_way.is_cancelled())
}

#[test]
fn half_of_all_is_the_most_for_one_token_or_one_address() {
    let places = StreamPlaces::new(8);
    let of_thief: Vec<_> = (0..4).map(|n| speaks(&places, at(n), Some("thief")).unwrap()).collect();
    assert_eq!(places.take(at(9), Some("thief")).err(), Some(NoPlace::Credential), "from anywhere");
    let here: Vec<_> = (0..3).map(|n| speaks(&places, at(0), Some(&n.to_string())).unwrap()).collect();
    assert_eq!(places.take(at(0), Some("4")).err(), Some(NoPlace::Address), "with any token");
    let mut silent = places.take(at(6), Some("other")).unwrap();
    let last = speaks(&places, at(5), None).unwrap();
    assert_eq!(places.take(at(6), Some("other")).err(), Some(NoPlace::Full));
    assert_eq!(silent.spoke(), Err(NoPlace::Full), "it had none before it said something");
    drop(last);
    drop(speaks(&places, at(6), Some("other")).unwrap());
    drop((of_thief, here, silent));
    let taken = places.lock();
    assert_eq!((taken.all, taken.by.len()), (0, 0), "nothing is kept");
    assert_eq!((taken.silent.all, taken.silent.by.len()), (0, 0));
}

#[test]
fn a_proxy_has_some_and_others_get_in() {
    let places = StreamPlaces::new(1000);
    let open = |name: &str| {
        let mut place = speaks(&places, at(1), Some(name)).unwrap();
        place.of(&proxy(name)).map(|()| place)
    };
    let held: Vec<_> = (0..PER_PROXY).map(|_| open("thief").ok().unwrap()).collect();
    assert_eq!(open("thief").err(), Some(NoPlace::Proxy));
    assert_eq!(places.lock().all, PER_PROXY, "who is refused gives his place back");
    let other = open("other").ok().unwrap();
    drop(held);
    assert!(open("thief").is_ok());
    drop(other);
    assert!(places.lock().by.is_empty());
}

#[test]
fn whoever_says_nothing_has_a_small_share_and_takes_no_place_of_others() {
    const ALL: usize = 80;
    const SILENT_OF_ALL: usize = ALL / SILENT_PART;
    let places = StreamPlaces::new(ALL);
    let thief: Vec<_> = (0..50).map(|n| places.take(at(n), Some("thief")).unwrap()).collect();
    let (oldest, rest) = thief.split_at(50 - SILENT_OF_ALL);
    assert!(oldest.iter().all(makes_way) && !rest.iter().any(makes_way));
    let newcomer = places.take(at(100), Some("newcomer")).unwrap();
    assert!(makes_way(&rest[0]) && !makes_way(&rest[1]) && !makes_way(&newcomer), "whoever has most");
    let all: Vec<_> = (0..80).map(|n| speaks(&places, at(n), Some(&n.to_string())).unwrap()).collect();
    assert_eq!(places.lock().all, ALL, "all of them are for those who speak");
    assert!(!makes_way(&newcomer));
    drop((thief, newcomer, all));
    let taken = places.lock();
    assert_eq!((taken.all, taken.silent.all, taken.silent.by.len()), (0, 0, 0));
}

#[test]
fn of_those_with_as_many_silent_streams_the_oldest_makes_way() {
    let places = StreamPlaces::new(16);
    let first = places.take(at(1), Some("a")).unwrap();
    let second = places.take(at(2), Some("b")).unwrap();
    let third = places.take(at(3), Some("c")).unwrap();
    assert!(makes_way(&first) && !makes_way(&second) && !makes_way(&third));
}

#[tokio::test]
async fn who_says_nothing_hears_that_he_makes_way() {
    let places = StreamPlaces::new(8);
    let mut silent = places.take(at(1), Some("a")).unwrap();
    let mut next = {
        let mut waits = pin!(silent.hear(pending::<()>()));
        assert!(poll!(waits.as_mut()).is_pending());
        let next = places.take(at(2), Some("b")).unwrap();
        assert_eq!(waits.await, Err(NoPlace::Silent));
        next
    };
    drop(silent);
    assert_eq!(next.hear(ready(1)).await, Ok(1));
    let _silent = places.take(at(3), Some("c")).unwrap();
    assert_eq!(places.lock().all, 1, "who speaks stays");
    drop(next);
    assert_eq!(places.lock().all, 0);
}

#[test]
fn the_number_of_a_reason_is_its_place() {
    for (place, reason) in NoPlace::ALL.into_iter().enumerate() {
        assert_eq!(place, reason as usize);
    }
}

#[test]
fn requests_are_of_the_token_they_come_with_and_only_without_one_of_the_address() {
    let places = StreamPlaces::new(8);
    let owner = |from, credential| places.take(from, credential).unwrap().owner();
    assert_eq!(owner(at(1), Some("stolen")), owner(at(2), Some("stolen")));
    assert_ne!(owner(at(1), Some("stolen")), owner(at(1), Some("honest")));
    assert_ne!(owner(at(1), None), owner(at(2), None));
    assert_eq!(owner(at(1), None), owner(at(1), None));
}
