#![allow(clippy::unwrap_used)]

use common::model::kinds::{dataplane, zone_ingress};

use super::*;

/// The questions, with a clock and what is on its way.
struct Play {
    questions: HostQuestions,
    now: Instant,
    asked: Vec<String>,
}

impl Play {
    fn new() -> Self {
        Self { questions: HostQuestions::default(), now: Instant::now(), asked: Vec::new() }
    }

    fn proxy(&mut self, name: &str, hosts: &[&str]) -> bool {
        self.proxy_of(Account::Operators, name, hosts)
    }

    fn proxy_of(&mut self, account: Account, name: &str, hosts: &[&str]) -> bool {
        let key = ResourceKey::new(&dataplane::KIND, "default", name);
        let owner = NameOwner::Proxy(account, key.clone());
        let names = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.questions.set(&key, owner, names, self.now)
    }

    /// A zone offers ingresses with these names, one each.
    fn zone(&mut self, zone: &str, names: impl Iterator<Item = String>) {
        for name in names {
            let key = ResourceKey::global(&zone_ingress::KIND, &format!("{zone}-{name}"));
            let owner = NameOwner::Zone(zone.into());
            self.questions.set(&key, owner, [name].into(), self.now);
        }
    }

    /// Everything that is to be asked for now.
    fn ask(&mut self) -> Vec<String> {
        let asked: Vec<String> = std::iter::from_fn(|| self.questions.next(self.now)).collect();
        self.asked.extend(asked.clone());
        asked
    }

    fn answer(&mut self, name: &str, address: Option<&str>) -> bool {
        let at = self.asked.iter().position(|asked| asked == name).expect("it was asked for");
        self.asked.remove(at);
        self.questions.answered(name, address.map(|a| a.parse().unwrap()), self.now)
    }

    fn address(&self, name: &str) -> Option<String> {
        self.questions.hosts().0.get(name).map(ToString::to_string)
    }

    fn after(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

#[test]
fn a_zone_with_names_that_nobody_answers_keeps_no_other_waiting() {
    let mut play = Play::new();
    play.zone("stolen", (0..10_000).map(|i| format!("dead-{i}")));
    let asked = play.ask();
    assert_eq!(asked.len(), AT_ONCE, "{asked:?}");
    assert_eq!(play.questions.names.len(), NAMES_OF_ZONE);
    // Nothing comes back, and others are asked for at once.
    play.zone("honest", ["edge".to_owned()].into_iter());
    play.proxy("web", &["db.local"]);
    let mut asked = play.ask();
    asked.sort();
    assert_eq!(asked, ["db.local", "edge"]);
    // Many such zones do not reach the proxies of the zone.
    for i in 0..10 {
        play.zone(&format!("stolen-{i}"), (0..10).map(|n| format!("dead-{i}-{n}")));
    }
    assert_eq!(play.ask().len(), AT_ONCE_TOGETHER - AT_ONCE - 1);
    play.proxy("api", &["cache.local"]);
    assert_eq!(play.ask(), ["cache.local"]);
}

#[test]
fn what_is_not_found_is_asked_for_with_growing_pauses() {
    let mut play = Play::new();
    play.proxy("web", &["gone"]);
    let mut pauses = Vec::new();
    for round in 0..9 {
        assert_eq!(play.ask(), ["gone"]);
        assert_eq!(play.answer("gone", None), round == 0, "it is told once");
        // Whatever else changes, it is not asked for any sooner.
        play.proxy("other", &[["a", "b"][round % 2]]);
        for name in play.ask() {
            play.answer(&name, Some("10.0.0.1"));
        }
        assert_eq!(play.ask(), [""; 0]);
        let due = play.questions.names["gone"].phase;
        let Phase::Rests(until) = due else { panic!("{due:?}") };
        pauses.push((until - play.now).as_secs());
        play.now = until;
        play.proxy("other", &[]);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[test]
fn a_known_name_keeps_its_address_until_nobody_has_it() {
    let mut play = Play::new();
    play.proxy("web", &["db"]);
    play.proxy("api", &["db"]);
    assert_eq!(play.ask(), ["db"]);
    play.answer("db", Some("10.0.0.1"));
    play.after(29);
    assert_eq!(play.ask(), [""; 0]);
    play.after(1);
    assert_eq!(play.ask(), ["db"]);
    play.answer("db", None);
    assert_eq!(play.address("db").as_deref(), Some("10.0.0.1"));
    play.after(30);
    assert_eq!(play.ask(), ["db"]);
    play.answer("db", Some("10.0.0.2"));
    assert_eq!(play.address("db").as_deref(), Some("10.0.0.2"));
    play.proxy("web", &[]);
    assert!(play.address("db").is_some());
    play.proxy("api", &[]);
    assert_eq!(play.address("db"), None);
    assert!(play.questions.due().is_none() && play.questions.owners.is_empty());
}

#[test]
fn beyond_its_number_an_owner_waits_for_what_it_lets_go() {
    let mut play = Play::new();
    let names: Vec<String> = (0..=NAMES_OF_PROXY).map(|i| format!("n-{i:03}")).collect();
    let of = |from: usize| names[from..].iter().map(String::as_str).collect::<Vec<_>>();
    assert!(play.proxy("web", &of(0)));
    let mut asked = Vec::new();
    loop {
        let now = play.ask();
        if now.is_empty() {
            break;
        }
        for name in now {
            play.answer(&name, Some("10.0.0.1"));
            asked.push(name);
        }
    }
    assert_eq!(asked.len(), NAMES_OF_PROXY);
    assert!(!play.proxy("web", &of(1)));
    assert_eq!(play.ask(), [names[NAMES_OF_PROXY].clone()]);
    assert_eq!(play.questions.hosts().0.len(), NAMES_OF_PROXY - 1);
}

#[test]
fn a_name_let_go_while_it_is_asked_for_is_not_asked_for_twice() {
    let mut play = Play::new();
    play.proxy("web", &["db"]);
    assert_eq!(play.ask(), ["db"]);
    play.proxy("web", &[]);
    play.proxy("web", &["db"]);
    assert_eq!(play.ask(), [""; 0]);
    play.answer("db", Some("10.0.0.1"));
    assert_eq!(play.address("db").as_deref(), Some("10.0.0.1"));
    play.proxy("web", &["other"]);
    assert_eq!(play.ask(), ["other"]);
    play.proxy("web", &[]);
    play.answer("other", Some("10.0.0.1"));
    assert!(play.questions.hosts().0.is_empty());
    assert!(play.questions.owners.is_empty() && play.questions.asking.is_empty());
}

#[test]
fn those_of_one_owner_take_turns() {
    let mut play = Play::new();
    play.zone("east", (0..6).map(|i| format!("e-{i}")));
    let first = play.ask();
    assert_eq!(first, ["e-0", "e-1", "e-2", "e-3"]);
    play.answer("e-1", None);
    assert_eq!(play.ask(), ["e-4"]);
    play.after(2);
    play.answer("e-2", None);
    // What failed comes behind what was never asked for.
    assert_eq!(play.ask(), ["e-5"]);
    play.answer("e-3", None);
    assert_eq!(play.ask(), ["e-1"]);
}

#[test]
fn a_thousand_proxies_with_one_token_have_one_turn() {
    let mut play = Play::new();
    let thief = || Account::Token("thief".into());
    for i in 0..1000 {
        play.proxy_of(thief(), &format!("t-{i}"), &[&format!("dead-{i}-a"), &format!("dead-{i}-b")]);
    }
    assert_eq!(play.ask().len(), AT_ONCE_IN_LINE, "the rest is for others");
    play.proxy("web", &["db.local"]);
    play.proxy_of(Account::Token("api".into()), "api", &["cache.local"]);
    let mut asked = play.ask();
    asked.sort();
    assert_eq!(asked, ["cache.local", "db.local"]);
    // What is answered gives turns to both, however many wait in line.
    for i in 0..30 {
        play.proxy(&format!("o-{i}"), &[&format!("other-{i}")]);
    }
    play.ask();
    let dead: Vec<String> = play.asked.iter().filter(|name| name.starts_with("dead")).cloned().collect();
    for name in &dead {
        play.answer(name, None);
    }
    let asked = play.ask();
    let of_thief = asked.iter().filter(|name| name.starts_with("dead")).count();
    assert_eq!((asked.len(), of_thief), (AT_ONCE_IN_LINE, 1), "{asked:?}");
    for i in 0..1000 {
        play.proxy_of(thief(), &format!("t-{i}"), &[]);
    }
    for name in play.asked.clone() {
        play.answer(&name, Some("10.0.0.1"));
    }
    let queue = &play.questions.turns[&AskingSide::Here];
    assert!(!queue.at_once.keys().any(|line| matches!(line, TurnLine::Account(_))), "nothing is kept");
}
