//! Rows that dashboards of several control planes have.

use super::board::{Row, Shape, panel, percentiles, row};

/// Whether the store keeps up, of the processes that are `chosen`.
pub(crate) fn store(chosen: &str) -> Row {
    row(
        "Does the store keep up?",
        vec![
            panel(
                Shape::Lines,
                "How long a write takes",
                "s",
                "Until it is durable or refused. Tens of milliseconds are a slow disk; seconds are one that fails: see \
                 /ready, and the log.",
                percentiles("store", chosen),
            ),
            panel(
                Shape::Lines,
                "Writes",
                "ops",
                "By what they do. Many updates of insights are proxies or zones that come and go.",
                [(
                    format!("sum by (operation) (rate(store_count{{{chosen}}}[$__rate_interval]))"),
                    "{{operation}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Writes that did not go through",
                "ops",
                "Conflicts are tried again by whoever wrote. Failures are the disk or the database: nothing can be \
                 changed meanwhile.",
                [
                    (format!("sum(rate(store_conflicts{{{chosen}}}[$__rate_interval]))"), "conflicts"),
                    (
                        format!("sum(rate(store_write_failures_total{{{chosen}}}[$__rate_interval]))"),
                        "failures",
                    ),
                ],
            ),
            panel(
                Shape::Lines,
                "Revision",
                "none",
                "Of each process. Replicas of one store have the same within a moment; one that stays behind does not \
                 hear from the database.",
                [(format!("store_revision{{{chosen}}}"), "{{instance}}")],
            ),
            panel(
                Shape::Lines,
                "Resources",
                "none",
                "The ten most frequent types.",
                [(
                    format!("topk(10, max by (resource_type) (resources_count{{{chosen}}}))"),
                    "{{resource_type}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Connections to Postgres",
                "none",
                "In use, and how many there may be; none with SQLite. All in use for long: the database is slow.",
                [
                    (
                        format!("sum by (pool) (store_postgres_connections{{type=\"in_use\", {chosen}}})"),
                        "{{pool}} in use",
                    ),
                    (
                        format!("sum by (pool) (store_postgres_connections_max{{{chosen}}})"),
                        "{{pool}} at most",
                    ),
                ],
            ),
        ],
    )
}

/// Whether the API answers, of the processes that are `chosen`.
pub(crate) fn api(chosen: &str) -> Row {
    row(
        "Does the API answer?",
        vec![
            panel(
                Shape::Lines,
                "Requests",
                "reqps",
                "By status. 4xx is for the caller to look at; 503 says what is overloaded or cannot be written.",
                [(
                    format!(
                        "sum by (code) (rate(api_server_http_request_duration_seconds_count{{{chosen}}}[$__rate_interval]))"
                    ),
                    "{{code}}",
                )],
            ),
            panel(
                Shape::Lines,
                "The slowest routes",
                "s",
                "99 of 100 requests are faster. Writes wait for the store, questions about Envoys for these.",
                [(
                    format!(
                        "topk(5, histogram_quantile(0.99, sum by (le, handler, method) \
                         (rate(api_server_http_request_duration_seconds_bucket{{{chosen}}}[$__rate_interval]))))"
                    ),
                    "{{method}} {{handler}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Requests without an answer yet",
                "none",
                "A number that grows is a part of the process that hangs, or a client that asks too much.",
                [(
                    format!("topk(5, sum by (handler) (api_server_http_requests_inflight{{{chosen}}}))"),
                    "{{handler}}",
                )],
            ),
        ],
    )
}

/// Whether the process has what it needs, of those that are `chosen`.
pub(crate) fn process(chosen: &str) -> Row {
    row(
        "Does the process have what it needs?",
        vec![
            panel(
                Shape::Lines,
                "Processor",
                "none",
                "Cores in use. All of them for minutes: changes wait, see how long they take above.",
                [(format!("rate(process_cpu_seconds_total{{{chosen}}}[$__rate_interval])"), "{{instance}}")],
            ),
            panel(
                Shape::Lines,
                "Memory",
                "bytes",
                "Resident. Grows with resources, zones and proxies, not with time.",
                [(format!("process_resident_memory_bytes{{{chosen}}}"), "{{instance}}")],
            ),
            panel(
                Shape::Lines,
                "Open files and connections",
                "percentunit",
                "Share of what the process may have open. Raise `ulimit -n` before it is used up.",
                [(format!("process_open_fds{{{chosen}}} / process_max_fds{{{chosen}}}"), "{{instance}}")],
            ),
            panel(
                Shape::Lines,
                "Connections",
                "none",
                "By listener, and by whether the client has shown who it is.",
                [(
                    format!("sum by (listener, client) (connections_open{{{chosen}}})"),
                    "{{listener}} {{client}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Connections turned away",
                "cps",
                "By reason. `full` and `address` are limits (general.connections), the others clients that do not come \
                 further.",
                [(
                    format!(
                        "sum by (listener, reason) (rate(connections_refused_total{{{chosen}}}[$__rate_interval])) > 0"
                    ),
                    "{{listener}} {{reason}}",
                )],
            ),
            panel(
                Shape::Lines,
                "Warnings and errors in the log",
                "cpm",
                "A minute. The log says what.",
                [(
                    format!(
                        "60 * sum by (level) (rate(log_lines_total{{level=~\"WARN|ERROR\", {chosen}}}[$__rate_interval]))"
                    ),
                    "{{level}}",
                )],
            ),
        ],
    )
}
