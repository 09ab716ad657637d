#![allow(clippy::unwrap_used)]

use chrono::TimeDelta;
use common::model::{
    Duration as Span,
    kinds::{
        rollout::{HaltConditions, HaltQuery},
        rollout_insight::WaveRun,
    },
};
use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
}

fn wave(zones: &[&str], pause: Option<WavePause>) -> WaveRun {
    let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
    WaveRun { zones, pause, ..WaveRun::default() }
}

/// A run of three waves that was begun at 0 and stored at revision 10.
fn run(pause: Option<WavePause>, halt_on: HaltConditions) -> RolloutRun {
    let waves =
        vec![wave(&["a"], pause), wave(&["b"], None), WaveRun { everybody: true, ..WaveRun::default() }];
    let mut run = RolloutRun { begun: at(0), waves, halt_on, ..RolloutRun::default() };
    run.release(0, at(0), BTreeSet::new(), []);
    run
}

fn zone(name: &str, acked: Revision) -> ZoneFacts {
    ZoneFacts {
        zone: name.into(),
        is_enabled: true,
        health: ZoneHealth::Online,
        acked,
        ..ZoneFacts::default()
    }
}

fn facts(zones: Vec<ZoneFacts>) -> RunFacts {
    RunFacts { zones, ..RunFacts::default() }
}

/// Acts as the driver does.
fn act(run: &mut RolloutRun, now: DateTime<Utc>, step: RunStep) {
    match step {
        RunStep::Halt(reasons) => run.halt(now, "", reasons).unwrap(),
        RunStep::Converge => run.converge(now),
        RunStep::Release { wave, away, standing } => run.release(wave, now, away, standing),
        RunStep::Finish => run.finish(now),
    }
}

fn go_on(run: &mut RolloutRun, now: DateTime<Utc>, stored: Revision, facts: &RunFacts) {
    let next = step(now, run, stored, facts).step.unwrap();
    act(run, now, next);
}

fn halted(outlook: Outlook) -> Vec<String> {
    match outlook.step {
        Some(RunStep::Halt(reasons)) => reasons.into_iter().map(|reason| reason.text).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wave_follows_when_the_one_before_has_it_and_has_rested() {
    let mut run = run(Some(WavePause::For(Span::from_secs(60))), HaltConditions::default());
    let behind = facts(vec![zone("a", 9), zone("b", 9), zone("c", 9)]);
    assert_eq!(step(at(1), &run, 10, &behind), Outlook::default());
    let has_it = facts(vec![zone("a", 10), zone("b", 10), zone("c", 10)]);
    assert_eq!(step(at(2), &run, 10, &has_it).step, Some(RunStep::Converge));
    act(&mut run, at(2), RunStep::Converge);
    assert_eq!(run.state, RolloutState::Paused);
    assert_eq!(step(at(61), &run, 10, &has_it), Outlook::wait(Some(at(62))));
    let release = step(at(62), &run, 10, &has_it).step.unwrap();
    assert!(matches!(release, RunStep::Release { wave: 1, .. }), "{release:?}");
    act(&mut run, at(62), release);
    run.stored_at(20);
    // Who was at the revision of the change is not at that of the release.
    assert_eq!(step(at(63), &run, 21, &has_it), Outlook::default());
    let has_it = facts(vec![zone("a", 20), zone("b", 20), zone("c", 20)]);
    go_on(&mut run, at(64), 21, &has_it);
    assert_eq!(run.state, RolloutState::Running, "it has no pause");
    go_on(&mut run, at(65), 21, &has_it);
    assert!(run.is_everywhere());
    let all = facts(vec![zone("a", 30), zone("b", 30), zone("c", 30)]);
    go_on(&mut run, at(66), 30, &all);
    assert_eq!(step(at(67), &run, 30, &all).step, Some(RunStep::Finish));
}

#[test]
fn a_manual_pause_lasts_until_somebody_ends_it() {
    let mut run = run(Some(WavePause::Manual), HaltConditions::default());
    let has_it = facts(vec![zone("a", 10), zone("b", 10)]);
    assert!(run.advance(at(1), "ann").is_err(), "the wave has not got it yet");
    act(&mut run, at(1), RunStep::Converge);
    assert_eq!(step(at(1_000_000), &run, 10, &has_it), Outlook::default());
    run.advance(at(2), "ann").unwrap();
    assert!(matches!(step(at(2), &run, 10, &has_it).step, Some(RunStep::Release { wave: 1, .. })));
}

#[test]
fn proxies_are_waited_for_where_their_zone_tells_how_far_they_are() {
    let run = run(None, HaltConditions::default());
    let with = |proxies| facts(vec![ZoneFacts { proxies, ..zone("a", 10) }]);
    assert_eq!(step(at(1), &run, 10, &with(Some(9))).step, None);
    assert_eq!(step(at(1), &run, 10, &with(Some(10))).step, Some(RunStep::Converge));
    assert_eq!(step(at(1), &run, 10, &with(None)).step, Some(RunStep::Converge));
}

#[test]
fn what_halts_it_is_told_and_excused_once() {
    let refusal = |text: &str| HaltReason { about: text.to_owned(), text: text.to_owned() };
    let lost = ZoneFacts { health: ZoneHealth::Offline, ..zone("a", 10) };
    let refuses = ZoneFacts { zone_refusals: vec![refusal("a refuses")], ..zone("a", 10) };
    let envoy = ZoneFacts { proxy_refusals: vec![refusal("an Envoy refuses")], ..zone("a", 10) };
    let none = HaltConditions {
        zone_refuses: false,
        proxy_refuses: false,
        zone_lost: false,
        ..HaltConditions::default()
    };
    for (zone, expected) in [(lost, "a is lost"), (refuses, "a refuses"), (envoy, "an Envoy refuses")] {
        let facts = facts(vec![zone]);
        let mut run = run(None, HaltConditions::default());
        assert_eq!(halted(step(at(1), &run, 10, &facts)), [expected]);
        go_on(&mut run, at(1), 10, &facts);
        assert_eq!(step(at(2), &run, 10, &facts), Outlook::default(), "nothing goes on by itself");
        run.resume(at(3), "ann").unwrap();
        assert!(!matches!(step(at(3), &run, 10, &facts).step, Some(RunStep::Halt(_))));
        let mut run = self::run(None, none.clone());
        assert!(!matches!(step(at(1), &run, 10, &facts).step, Some(RunStep::Halt(_))));
        // What another wave does is not about this one.
        let elsewhere = RunFacts {
            zones: facts.zones.iter().map(|zone| ZoneFacts { zone: "b".into(), ..zone.clone() }).collect(),
            ..RunFacts::default()
        };
        run.halt_on = HaltConditions::default();
        assert!(!matches!(step(at(1), &run, 10, &elsewhere).step, Some(RunStep::Halt(_))));
    }
}

#[test]
fn who_was_away_before_is_not_lost_and_a_wave_of_nobody_proves_nothing() {
    let mut run = run(None, HaltConditions::default());
    run.waves[0].away.insert("a".to_owned());
    let offline = facts(vec![ZoneFacts { health: ZoneHealth::Offline, ..zone("a", 3) }]);
    assert_eq!(step(at(1), &run, 10, &offline), Outlook::default());
    assert_eq!(step(at(2), &run, 10, &facts(vec![zone("a", 10)])).step, Some(RunStep::Converge));
    // Below a relay it comes last, so nobody is left in its wave.
    let relayed = facts(vec![ZoneFacts { is_relayed: true, ..zone("a", 3) }]);
    assert_eq!(step(at(2), &run, 10, &relayed).step, Some(RunStep::Converge));
}

#[test]
fn a_wave_may_take_so_long_and_no_longer() {
    let halt_on = HaltConditions { converge: Some(Span::from_secs(30)), ..HaltConditions::default() };
    let mut run = run(None, halt_on);
    run.stored_at(10);
    let behind = facts(vec![zone("a", 9)]);
    assert_eq!(step(at(29), &run, 10, &behind), Outlook::wait(Some(at(30))));
    let why = halted(step(at(30), &run, 10, &behind)).remove(0);
    assert_eq!(why, "wave 1 of 3 has not got the change within 30s: a");
    go_on(&mut run, at(30), 10, &behind);
    run.resume(at(40), "ann").unwrap();
    assert_eq!(step(at(99), &run, 10, &behind), Outlook::default(), "somebody waits for it all the same");
}

/// A run of waves that are asked about, the first of which has the change since 5.
fn asked_about(interval: Option<i64>) -> RolloutRun {
    let interval = interval.map(Span::from_secs);
    let query = HaltQuery { promql: "errors".to_owned(), above: Some(1.0), interval, ..HaltQuery::default() };
    let mut run = run(None, HaltConditions { queries: vec![query], ..HaltConditions::default() });
    act(&mut run, at(5), RunStep::Converge);
    run
}

fn answered(newest: QueryFacts) -> RunFacts {
    RunFacts { queries: vec![Some(newest)], ..facts(vec![zone("a", 10), zone("b", 10)]) }
}

#[test]
fn a_query_is_asked_once_more_when_the_wave_has_the_change() {
    let run = asked_about(None);
    let with = |asked, finding| answered(QueryFacts::after(None, at(asked), finding));
    assert_eq!(step(at(6), &run, 10, &with(4, QueryFinding::Good)), Outlook::wait(Some(at(5))));
    let asking = RunFacts { asking: BTreeSet::from([0]), ..with(4, QueryFinding::Good) };
    assert_eq!(step(at(6), &run, 10, &asking), Outlook::wait(None), "the answer wakes by itself");
    assert!(matches!(
        step(at(6), &run, 10, &with(6, QueryFinding::Good)).step,
        Some(RunStep::Release { .. })
    ));
    let why = halted(step(at(6), &run, 10, &with(6, QueryFinding::Bad("2 is above 1".to_owned()))));
    assert_eq!(why, ["query \"errors\": 2 is above 1"]);
}

#[test]
fn five_minutes_without_an_answer_halt_it_and_not_one_that_is_late() {
    let run = asked_about(Some(3600));
    let gone = || QueryFinding::Unheard("gone".to_owned());
    // It was heard before, and the wave is older than five minutes.
    let heard = QueryFacts::after(None, at(900), QueryFinding::Good);
    let first = QueryFacts::after(Some(&heard), at(1_000), gone());
    assert_eq!(step(at(1_000), &run, 10, &answered(first.clone())).step, None);
    // It is asked again before long, however seldom it is asked as long as it has answers.
    assert_eq!(query_due(at(1_001), &run, 0, Some(&first)), at(1_030));
    assert_eq!(query_due(at(901), &run, 0, Some(&heard)), at(4_500));
    let late = QueryFacts::after(Some(&first), at(1_299), gone());
    assert_eq!(step(at(1_299), &run, 10, &answered(late.clone())).step, None);
    let last = QueryFacts::after(Some(&late), at(1_300), gone());
    assert_eq!(
        halted(step(at(1_300), &run, 10, &answered(last.clone()))),
        ["query \"errors\" has no answer: gone"]
    );
    // An answer begins the time anew.
    let again = QueryFacts::after(Some(&last), at(1_310), QueryFinding::Good);
    let first = QueryFacts::after(Some(&again), at(1_320), gone());
    assert_eq!(step(at(1_320), &run, 10, &answered(first)).step, None);
}

#[test]
fn what_cannot_be_kept_back_halts_it_while_somebody_waits() {
    let lost = HaltReason { about: "kept a".to_owned(), text: "a cannot be read".to_owned() };
    let facts = RunFacts { lost: vec![lost], ..facts(vec![zone("a", 10), zone("b", 10), zone("c", 10)]) };
    let mut run = run(None, HaltConditions::default());
    assert_eq!(halted(step(at(1), &run, 10, &facts)), ["a cannot be read"]);
    run.release(2, at(1), BTreeSet::new(), []);
    assert_eq!(step(at(1), &run, 10, &facts).step, Some(RunStep::Converge), "everybody has it");
}

proptest! {
    /// An answer that a clock gave which was put back since is as good as none, and the query is asked at once.
    #[test]
    fn an_answer_from_the_future_says_nothing(
        now in 0..100i64, ahead in 1..10_000i64, finding in 0..3, since in prop::option::of(0..10_000i64),
    ) {
        let run = asked_about(None);
        let finding = match finding {
            0 => QueryFinding::Good,
            1 => QueryFinding::Bad("2 is above 1".to_owned()),
            _ => QueryFinding::Unheard("gone".to_owned()),
        };
        let newest = QueryFacts { asked: at(now + ahead), finding, unheard: since.map(at) };
        let facts = answered(newest.clone());
        let unanswered = RunFacts { queries: vec![None], ..facts.clone() };
        prop_assert_eq!(step(at(now), &run, 10, &facts), step(at(now), &run, 10, &unanswered));
        prop_assert_eq!(step(at(now), &run, 10, &facts), Outlook::wait(Some(at(now))));
        prop_assert_eq!(query_due(at(now), &run, 0, Some(&newest)), at(now));
    }

    /// However the clock is put, a query is asked again within its interval, and one answer that is late halts nothing.
    #[test]
    fn a_clock_that_is_put_back_stops_no_query(times in prop::collection::vec(0..1_000i64, 1..20)) {
        let run = asked_about(None);
        let mut newest: Option<QueryFacts> = None;
        for now in times {
            let due = query_due(at(now), &run, 0, newest.as_ref());
            prop_assert!(due <= at(now + 30), "{due} is late at {now}");
            if due > at(now) {
                continue;
            }
            let next = QueryFacts::after(newest.as_ref(), at(now), QueryFinding::Unheard("gone".to_owned()));
            let since = next.unheard.unwrap();
            prop_assert!(since <= at(now));
            let is_halted = matches!(step(at(now), &run, 10, &answered(next.clone())).step, Some(RunStep::Halt(_)));
            prop_assert_eq!(is_halted, at(now) - since >= TimeDelta::seconds(300));
            newest = Some(next);
        }
    }
}

#[derive(Clone, Debug)]
enum Happening {
    Time(i64),
    Acks(usize, bool),
    Health(usize, ZoneHealth),
    Refuses(usize),
    Resume,
    Advance,
    Abort,
    Halt,
}

fn happening() -> impl Strategy<Value = Happening> {
    let health = prop_oneof![
        Just(ZoneHealth::Online),
        Just(ZoneHealth::Online),
        Just(ZoneHealth::Offline),
        Just(ZoneHealth::Unknown)
    ];
    prop_oneof![
        4 => (1..40i64).prop_map(Happening::Time),
        6 => (0..3usize, any::<bool>()).prop_map(|(zone, proxies)| Happening::Acks(zone, proxies)),
        1 => (0..3usize, health).prop_map(|(zone, health)| Happening::Health(zone, health)),
        1 => (0..3usize).prop_map(Happening::Refuses),
        2 => Just(Happening::Resume),
        2 => Just(Happening::Advance),
        1 => Just(Happening::Abort),
        1 => Just(Happening::Halt),
    ]
}

proptest! {
    /// No wave gets the change before the one before has it and has rested, nothing goes on while the run is halted, and
    /// nothing at all after it was aborted.
    #[test]
    fn waves_come_one_after_the_other(
        happenings in prop::collection::vec(happening(), 0..80),
        pause in prop_oneof![
            Just(None), Just(Some(WavePause::Manual)), Just(Some(WavePause::For(Span::from_secs(50))))
        ],
        converge in prop::option::of(30..200i64),
    ) {
        let halt_on = HaltConditions { converge: converge.map(Span::from_secs), ..HaltConditions::default() };
        let mut run = run(pause, halt_on);
        let mut zones = vec![zone("a", 0), zone("b", 0), zone("c", 0)];
        let (mut now, mut head) = (0, 10);
        run.stored_at(head);
        for happening in happenings {
            let was = run.clone();
            match happening {
                Happening::Time(seconds) => now += seconds,
                Happening::Acks(n, proxies) => {
                    zones[n].acked = head;
                    zones[n].proxies = Some(if proxies { head } else { 0 });
                }
                Happening::Health(n, health) => zones[n].health = health,
                Happening::Refuses(n) => {
                    let about = format!("refusal {now}");
                    zones[n].zone_refusals = vec![HaltReason { text: about.clone(), about }];
                }
                Happening::Resume => drop(run.resume(at(now), "ann")),
                Happening::Advance => drop(run.advance(at(now), "ann")),
                Happening::Halt => drop(run.halt(at(now), "ann", vec![HaltReason::default()])),
                Happening::Abort if !run.state.is_over() => run.state = RolloutState::Aborted,
                Happening::Abort => {}
            }
            // Nobody releases anything but a step.
            prop_assert_eq!(run.wave, was.wave);
            for _ in 0..10 {
                let before = run.clone();
                let Some(next) = step(at(now), &run, head, &facts(zones.clone())).step else { break };
                prop_assert!(matches!(before.state, RolloutState::Running | RolloutState::Paused));
                if let RunStep::Release { wave, .. } = &next {
                    let former = &before.waves[before.wave];
                    prop_assert_eq!(*wave, before.wave + 1);
                    let converged = former.converged.unwrap();
                    match former.pause {
                        _ if former.advanced => {}
                        None => {}
                        Some(WavePause::Manual) => prop_assert!(false, "nobody ended the pause"),
                        Some(WavePause::For(pause)) => {
                            prop_assert!(at(now) - converged >= length(pause.to_std()));
                        }
                    }
                }
                if next == RunStep::Converge {
                    let name = ["a", "b", "c"][before.wave];
                    let zone = zones.iter().find(|zone| &*zone.zone == name).unwrap();
                    let needed = before.waves[before.wave].revision.unwrap();
                    let has_it = zone.acked >= needed && zone.proxies.is_none_or(|p| p >= needed);
                    prop_assert!(has_it || (zone.health == ZoneHealth::Offline && before.wave == 2));
                }
                act(&mut run, at(now), next);
                head += 1;
                run.stored_at(head);
            }
        }
        if run.state == RolloutState::Aborted {
            prop_assert!(["a", "b", "c"].iter().all(|zone| run.has_released(zone)), "nothing is kept back");
        }
    }
}
