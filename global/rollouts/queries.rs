//! The queries of all runs. They are asked while everything else goes on: an answer that is long in coming holds up
//! nobody but the run that waits for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use common::model::kinds::{rollout::HaltQuery, rollout_insight::RolloutRun};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};

use super::{
    PromClient,
    machine::{QueryFacts, QueryFinding, query_due},
};

/// Queries that are on their way to the Prometheus at a time.
const AT_ONCE: usize = 16;

/// What is asked, and what came of it.
pub(super) struct RunQueries {
    /// Who answers, where the settings name somebody.
    prometheus: Option<Arc<PromClient>>,
    /// By id of the run.
    runs: BTreeMap<String, RunAnswers>,
    /// How often somebody began to ask for a run.
    begun: u64,
    asked: FuturesUnordered<BoxFuture<'static, QueryAnswer>>,
}

/// What is known of the queries of one run.
#[derive(Default)]
struct RunAnswers {
    /// Answers to what was asked for another are of no use: the run was halted in between.
    since: u64,
    newest: Vec<Option<QueryFacts>>,
    asking: BTreeSet<usize>,
}

struct QueryAnswer {
    run: String,
    since: u64,
    query: usize,
    asked: DateTime<Utc>,
    finding: QueryFinding,
}

impl RunQueries {
    pub(super) fn new(prometheus: Option<PromClient>) -> Self {
        let prometheus = prometheus.map(Arc::new);
        Self { prometheus, runs: BTreeMap::new(), begun: 0, asked: FuturesUnordered::new() }
    }

    /// Forgets what was answered for all but these runs.
    pub(super) fn keep<'a>(&mut self, runs: impl Iterator<Item = &'a str>) {
        let runs: BTreeSet<&str> = runs.collect();
        self.runs.retain(|id, _| runs.contains(id.as_str()));
        if runs.is_empty() {
            // Nobody waits for these answers any more.
            self.asked.clear();
        }
    }

    /// Forgets what was answered for a run.
    pub(super) fn forget(&mut self, run: &str) {
        self.runs.remove(run);
    }

    /// Asks what is due for a run, as far as there is room, and says what is known: the newest answers, and which
    /// queries wait for theirs or for room.
    pub(super) fn ask(
        &mut self,
        now: DateTime<Utc>,
        run: &RolloutRun,
    ) -> (Vec<Option<QueryFacts>>, BTreeSet<usize>) {
        let begun = &mut self.begun;
        let answers = self.runs.entry(run.id.clone()).or_insert_with(|| {
            *begun += 1;
            RunAnswers { since: *begun, ..RunAnswers::default() }
        });
        answers.newest.resize(run.halt_on.queries.len(), None);
        let mut waiting = answers.asking.clone();
        for (n, query) in run.halt_on.queries.iter().enumerate() {
            let newest = answers.newest[n].as_ref();
            if answers.asking.contains(&n) || query_due(now, run, n, newest) > now {
                continue;
            }
            waiting.insert(n);
            if self.asked.len() < AT_ONCE {
                answers.asking.insert(n);
                let (run, since) = (run.id.clone(), answers.since);
                let finding = judged(self.prometheus.clone(), query.clone());
                self.asked.push(Box::pin(async move {
                    QueryAnswer { run, since, query: n, asked: now, finding: finding.await }
                }));
            }
        }
        (answers.newest.clone(), waiting)
    }

    /// Waits for an answer; for ever when nothing is asked.
    pub(super) async fn answered(&mut self) {
        match self.asked.next().await {
            Some(answer) => self.take(answer),
            None => std::future::pending().await,
        }
    }

    fn take(&mut self, answer: QueryAnswer) {
        let outcome = match answer.finding {
            QueryFinding::Good => "good",
            QueryFinding::Bad(_) => "bad",
            QueryFinding::Unheard(_) => "unheard",
        };
        metrics::counter!("rollout_queries_total", "outcome" => outcome).increment(1);
        let QueryAnswer { run, since, query, asked, finding } = answer;
        let Some(answers) = self.runs.get_mut(&run).filter(|answers| answers.since == since) else { return };
        answers.asking.remove(&query);
        if let Some(newest) = answers.newest.get_mut(query) {
            *newest = Some(QueryFacts::after(newest.as_ref(), asked, finding));
        }
    }
}

async fn judged(prometheus: Option<Arc<PromClient>>, query: HaltQuery) -> QueryFinding {
    match prometheus {
        Some(prometheus) => prometheus.judge(&query).await,
        None => QueryFinding::Unheard("rollouts.prometheus.address names nobody to ask".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::model::kinds::rollout::HaltConditions;
    use tokio::net::TcpListener;

    use super::*;

    fn run(id: &str, queries: usize) -> RolloutRun {
        let query = HaltQuery { promql: "up".to_owned(), below: Some(1.0), ..HaltQuery::default() };
        let halt_on = HaltConditions { queries: vec![query; queries], ..HaltConditions::default() };
        RolloutRun { id: id.to_owned(), halt_on, ..RolloutRun::default() }
    }

    fn now() -> DateTime<Utc> {
        DateTime::UNIX_EPOCH
    }

    #[tokio::test]
    async fn a_query_without_an_answer_holds_up_nobody_and_few_are_asked_at_once() {
        // Accepts, and never says anything.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let prometheus = PromClient::at(&format!("http://{}", silent.local_addr().unwrap())).unwrap();
        let mut queries = RunQueries::new(Some(prometheus));
        for n in 0..5 {
            let (newest, waiting) = queries.ask(now(), &run(&n.to_string(), 5));
            assert!(newest.iter().all(Option::is_none) && waiting.len() == 5);
        }
        assert_eq!(queries.asked.len(), AT_ONCE);
        // What is asked is not asked twice.
        queries.ask(now(), &run("0", 5));
        assert_eq!(queries.asked.len(), AT_ONCE);
    }

    #[tokio::test]
    async fn an_answer_is_for_who_asked() {
        let mut queries = RunQueries::new(None);
        let run = run("a", 1);
        assert_eq!(queries.ask(now(), &run).1, BTreeSet::from([0]));
        queries.answered().await;
        let (newest, waiting) = queries.ask(now(), &run);
        let newest = newest[0].clone().unwrap();
        assert!(matches!(newest.finding, QueryFinding::Unheard(_)) && waiting.is_empty());
        assert_eq!(newest.unheard, Some(now()));
        // It was halted while the next was on its way.
        let later = now() + chrono::TimeDelta::seconds(60);
        queries.ask(later, &run);
        queries.forget("a");
        assert_eq!(queries.ask(later, &run).0, [None]);
        queries.answered().await;
        queries.answered().await;
        let newest = queries.ask(later, &run).0[0].clone().unwrap();
        assert_eq!(newest.unheard, Some(later), "what was asked before is forgotten");
        queries.keep(["b"].into_iter());
        assert!(queries.runs.is_empty());
    }
}
