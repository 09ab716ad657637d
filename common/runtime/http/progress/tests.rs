#![allow(clippy::unwrap_used)]

use super::*;

fn at(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

/// Seconds from `start` to the end, and the end.
fn ends(progress: &Progress, limits: &Limits, start: Instant) -> Option<(u64, Over)> {
    progress.deadline(limits).map(|(at, over)| ((at - start).as_secs(), over))
}

const LATE: Over = Over::Refused(Reason::NoRequest);
const SLOW: Over = Over::Refused(Reason::SlowRequest);

#[test]
fn bytes_do_not_move_the_deadline_of_the_first_request() {
    let (start, limits) = (Instant::now(), Limits::default());
    let mut progress = Progress::new(start);
    assert_eq!(ends(&progress, &limits, start), Some((5, LATE)));
    for second in 1..9 {
        progress.heard(1, &limits, at(start, second));
        assert_eq!(ends(&progress, &limits, start), Some((10, LATE)));
        assert!(progress.is_waiting(at(start, second)));
    }
}

#[test]
fn a_kept_connection_may_idle_but_not_ask_slowly() {
    let (start, limits) = (Instant::now(), Limits::default());
    let mut progress = Progress::new(start);
    progress.heard(100, &limits, start);
    let number = progress.asked(false, start);
    progress.arrived(number);
    assert!(!progress.is_waiting(start), "its answer is being made");
    assert_eq!(ends(&progress, &limits, start), Some((120, SLOW)));
    progress.answered(number, true, at(start, 1));
    assert_eq!(ends(&progress, &limits, start), Some((121, Over::Idle)));
    assert!(progress.heard(1, &limits, at(start, 20)));
    assert!(!progress.heard(1, &limits, at(start, 25)));
    assert_eq!(ends(&progress, &limits, start), Some((30, LATE)));
}

#[test]
fn what_is_left_of_a_body_that_was_refused_is_no_flood() {
    let (start, limits) = (Instant::now(), Limits::default());
    let window = usize::try_from(limits.window).unwrap();
    let burst = usize::try_from(limits.noise(false)).unwrap();
    let mut progress = Progress::new(start);
    let refuse = |progress: &mut Progress, before: usize| {
        let number = progress.asked(true, start);
        progress.heard(before, &limits, start);
        progress.answered(number, true, start);
    };
    for _ in 0..20 {
        refuse(&mut progress, window / 2);
        progress.heard(window / 2, &limits, start);
        assert!(!progress.is_flooded() && progress.noise == 0, "a window each");
    }
    // Several at once share the window of the connection.
    let several: Vec<_> = (0..5).map(|_| progress.asked(true, start)).collect();
    several.into_iter().for_each(|number| progress.answered(number, true, start));
    progress.heard(2 * window, &limits, start);
    assert_eq!((progress.noise, progress.late), (0, 0));
    refuse(&mut progress, 0);
    progress.heard(window + burst, &limits, start);
    assert!(!progress.is_flooded());
    progress.heard(1, &limits, start);
    assert!(progress.is_flooded(), "and no more than that");
}

#[test]
fn after_a_whole_body_nothing_more_is_to_come() {
    let (start, limits) = (Instant::now(), Limits::default());
    let mut progress = Progress::new(start);
    let number = progress.asked(true, start);
    progress.arrived(number);
    progress.answered(number, true, start);
    progress.heard(usize::try_from(limits.noise(false)).unwrap() + 1, &limits, start);
    assert!(progress.is_flooded());
}

#[test]
fn a_request_that_its_client_gave_up_excuses_nothing_but_what_came_of_it() {
    let (start, limits) = (Instant::now(), Limits::default());
    let mut progress = Progress::new(start);
    for _ in 0..20 {
        let number = progress.asked(true, start);
        progress.heard(200 << 10, &limits, start);
        progress.left_over(200 << 10);
        progress.answered(number, false, start);
    }
    assert_eq!((progress.is_flooded(), progress.late), (false, 0));
    progress.heard(usize::try_from(limits.noise(false)).unwrap() + 1, &limits, start);
    assert!(progress.is_flooded());
}

#[test]
fn pings_do_not_count_as_a_request_that_begins() {
    let (start, limits) = (Instant::now(), Limits::default());
    let mut progress = Progress::new(start);
    let number = progress.asked(true, start);
    progress.answered(number, true, start);
    assert!(!progress.heard(17, &limits, at(start, 30)));
    assert_eq!(ends(&progress, &limits, start), Some((120, Over::Idle)));
}

#[test]
fn a_long_stream_lives_once_its_client_is_known() {
    let (start, limits) = (Instant::now(), Limits::default());
    let mut progress = Progress::new(start);
    let stream = progress.asked(true, start);
    assert!(progress.is_waiting(start));
    assert_eq!(ends(&progress, &limits, start), Some((120, SLOW)));
    progress.vouched();
    assert_eq!(ends(&progress, &limits, start), None);
    assert!(!progress.is_waiting(at(start, 1_000_000)));
    progress.answered(stream, true, at(start, 50));
    assert_eq!(ends(&progress, &limits, start), Some((170, Over::Idle)));
}

#[test]
fn who_waits_for_what_others_do_can_go_and_who_is_worked_for_can_not() {
    let start = Instant::now();
    let mut progress = Progress::new(start);
    let [waits, works] = [0, 1].map(|_| progress.asked(true, start));
    progress.arrived(waits);
    progress.arrived(works);
    progress.parked(at(start, 3));
    assert!(!progress.is_waiting(at(start, 4)) && progress.asks_nothing_since().is_none());
    progress.answered(works, true, at(start, 5));
    assert!(progress.is_waiting(at(start, 6)));
    assert_eq!(progress.asks_nothing_since(), Some(at(start, 3)));
    progress.unparked();
    assert!(!progress.is_waiting(at(start, 7)), "its answer is being made");
}

#[test]
fn a_response_left_lying_makes_room_for_others_and_ends() {
    let (start, limits) = (Instant::now(), Limits::default());
    let mut progress = Progress::new(start);
    let number = progress.asked(true, start);
    progress.arrived(number);
    progress.offered(number, Some(at(start, 1)));
    assert!(!progress.is_waiting(at(start, 5)));
    assert!(progress.is_waiting(at(start, 6)));
    assert_eq!(ends(&progress, &limits, start), Some((31, SLOW)));
    progress.offered(number, None);
    assert_eq!(ends(&progress, &limits, start), Some((120, SLOW)));
}

#[test]
fn frames_that_carry_nothing_are_a_flood_and_bodies_are_not() {
    let (start, limits) = (Instant::now(), Limits::default());
    let mut progress = Progress::new(start);
    let stream = progress.asked(true, start);
    progress.vouched();
    for _ in 0..1000 {
        progress.heard(16 << 10, &limits, start);
        progress.took(16 << 10);
    }
    assert_eq!(ends(&progress, &limits, start), None, "16 MB of body in no time");
    for second in 0..10_000 {
        progress.heard(1000, &limits, at(start, second));
    }
    assert_eq!(ends(&progress, &limits, start), None, "pings for hours");
    progress.arrived(stream);
    progress.answered(stream, true, at(start, 10_000));
    for _ in 0..=limits.noise(false) / 17 {
        progress.heard(17, &limits, at(start, 10_000));
    }
    assert_eq!(progress.deadline(&limits).map(|end| end.1), Some(Over::Refused(Reason::Flood)));
}
