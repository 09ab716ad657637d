#![allow(clippy::unwrap_used)]

use std::{pin::Pin, task::Poll};

use futures::poll;

use super::*;

const AT_ONCE: usize = 2;

fn at(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

type Waiting = Pin<Box<dyn Future<Output = Result<FairTurn, Crowded>>>>;

fn take(turns: &Arc<FairTurns>, last: u8) -> Waiting {
    let turns = Arc::clone(turns);
    Box::pin(async move { turns.take(at(last)).await })
}

/// One that waits already.
async fn waits(turns: &Arc<FairTurns>, last: u8) -> Waiting {
    let mut waiting = take(turns, last);
    assert!(poll!(&mut waiting).is_pending());
    waiting
}

async fn all(turns: &Arc<FairTurns>) -> Vec<FairTurn> {
    futures::future::try_join_all((0..AT_ONCE).map(|_| take(turns, 1))).await.unwrap()
}

#[tokio::test]
async fn addresses_take_turns() {
    let turns = Arc::new(FairTurns::new(AT_ONCE));
    let mut taken = all(&turns).await;
    let (mut first, mut second) = (waits(&turns, 1).await, waits(&turns, 1).await);
    let mut other = waits(&turns, 2).await;
    taken.pop();
    assert!(poll!(&mut first).is_ready());
    assert!(poll!(&mut second).is_pending() && poll!(&mut other).is_ready(), "one of each, and it goes on");
    assert!(poll!(&mut second).is_ready());
    drop(taken);
    let queues = turns.lock();
    assert_eq!((queues.taken, queues.waiting, queues.order.len(), queues.of.len()), (0, 0, 0, 0));
}

#[tokio::test]
async fn who_left_is_passed_over_and_a_turn_ends_with_its_last_copy() {
    let turns = Arc::new(FairTurns::new(AT_ONCE));
    let mut taken = all(&turns).await;
    let (left, mut stays) = (waits(&turns, 1).await, waits(&turns, 1).await);
    drop(left);
    let copy = taken[0].clone();
    drop(taken.remove(0));
    assert!(poll!(&mut stays).is_pending());
    drop(copy);
    let turn = stays.await.unwrap();
    assert_eq!(turns.lock().taken, AT_ONCE);
    drop((taken, turn));
    assert_eq!(turns.lock().taken, 0);
}

#[tokio::test]
async fn a_turn_that_nobody_came_for_is_passed_on() {
    let turns = Arc::new(FairTurns::new(AT_ONCE));
    let taken = all(&turns).await;
    let given = waits(&turns, 1).await;
    drop(taken);
    drop(given);
    assert_eq!(turns.lock().taken, 0);
}

#[tokio::test]
async fn what_is_made_of_several_large_parts_takes_one_turn_and_keeps_it() {
    let turns = Arc::new(FairTurns::new(AT_ONCE));
    let shared = SharedTurn::default();
    assert!(shared.made(Response::new(())).extensions().get::<FairTurn>().is_none());
    for _ in 0..3 {
        let part = shared.get_or_take(turns.take(at(1))).await.unwrap();
        drop(part.made(Response::new(())));
        assert_eq!(turns.lock().taken, 1, "also between two parts");
    }
    let answer = shared.made(Response::new(()));
    drop(shared);
    assert_eq!(turns.lock().taken, 1, "until it is counted");
    drop(answer);
    assert_eq!(turns.lock().taken, 0);
    let refused = SharedTurn::default();
    assert_eq!(refused.get_or_take(async { Err(Crowded) }).await.unwrap_err(), Crowded);
    assert!(refused.is_refused());
}

#[tokio::test]
async fn who_would_wait_for_too_long_is_told_to_come_again() {
    let turns = Arc::new(FairTurns::new(AT_ONCE));
    let _taken = all(&turns).await;
    let mut waiting = Vec::new();
    for _ in 0..WAITING_PER_ADDRESS {
        waiting.push(waits(&turns, 1).await);
    }
    assert_eq!(take(&turns, 1).await.unwrap_err(), Crowded);
    let _other_address = waits(&turns, 2).await;
    waiting.truncate(1);
    let _room_again = waits(&turns, 1).await;
    assert_eq!(turns.lock().waiting, 3);
}

#[tokio::test]
async fn whoever_has_most_waiting_makes_way_for_who_has_less() {
    const CROWD: u8 = 8;
    let turns = Arc::new(FairTurns::new(AT_ONCE));
    let _taken = all(&turns).await;
    let mut crowd = Vec::new();
    for address in 1..=CROWD {
        for _ in 0..WAITING_PER_ADDRESS {
            crowd.push(waits(&turns, address).await);
        }
    }
    assert_eq!(crowd.len(), WAITING, "there is no room");
    let mut newcomer = waits(&turns, CROWD + 1).await;
    let mut gone = Vec::new();
    for (number, one) in crowd.iter_mut().enumerate() {
        if let Poll::Ready(turn) = poll!(one) {
            assert_eq!(turn.unwrap_err(), Crowded);
            gone.push(number % WAITING_PER_ADDRESS);
        }
    }
    assert_eq!(gone, [WAITING_PER_ADDRESS - 1], "the last one of an address");
    assert!(poll!(&mut newcomer).is_pending());
    assert_eq!(turns.lock().waiting, WAITING);
}

#[tokio::test]
async fn nobody_makes_way_for_who_has_as_many() {
    let limits = TurnLimits { at_once: AT_ONCE, each: AT_ONCE, waiting: 3, waiting_each: 3 };
    let turns = Arc::new(FairTurns::limited(limits));
    let _taken = all(&turns).await;
    let _others = (waits(&turns, 1).await, waits(&turns, 2).await);
    let mut second = waits(&turns, 2).await;
    let _third_address = waits(&turns, 3).await;
    assert!(matches!(poll!(&mut second), Poll::Ready(Err(Crowded))));
    assert_eq!(take(&turns, 4).await.unwrap_err(), Crowded, "each has one");
}

#[tokio::test]
async fn nobody_has_more_turns_than_his_share() {
    let turns = Arc::new(FairTurns::shared_out(4, 2));
    let mut of_thief: Vec<_> = (0..2).map(|_| turns.try_take(&"thief").unwrap()).collect();
    assert!(turns.try_take(&"thief").is_none());
    let mut third = Box::pin(turns.take_as("thief"));
    assert!(poll!(&mut third).is_pending());
    let others: Vec<_> = ["a", "b"].iter().map(|other| turns.try_take(other).unwrap()).collect();
    let mut late = Box::pin(turns.take_as("late"));
    assert!(poll!(&mut late).is_pending());
    drop(others);
    assert!(poll!(&mut third).is_pending(), "while two turns are free");
    let late = late.await.unwrap();
    of_thief.pop();
    let third = third.await.unwrap();
    assert_eq!(turns.lock().taken, 3);
    drop((of_thief, third, late));
    let queues = turns.lock();
    assert_eq!((queues.taken, queues.waiting, queues.order.len(), queues.of.len()), (0, 0, 0, 0));
}
