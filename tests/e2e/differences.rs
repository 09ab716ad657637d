//! What once differed from a real Kuma, row by row, and the tests that show that it does not any more, or the words of
//! `docs/compatibility.md` that say why it stays. `cargo test --test e2e every_row -- --nocapture` prints the table.

mod asked;
mod read;
mod written;

use std::{fmt::Write, fs, path::Path};

use crate::harness::tally::say;

/// One difference, and what became of it.
struct Row {
    number: usize,
    what: &'static str,
    /// Tests by their files and names.
    tests: &'static [(&'static str, &'static str)],
    /// What `docs/compatibility.md` says of what stays.
    stays: &'static [&'static str],
}

const WRITTEN: &str = "tests/e2e/differences/written.rs";
const READ: &str = "tests/e2e/differences/read.rs";
const ASKED: &str = "tests/e2e/differences/asked.rs";

/// The rows of what was seen of kumactl and the API, in their order.
const ROWS: &[Row] = &[
    Row {
        number: 1,
        what: "which policy applies where",
        tests: &[
            ("tests/e2e/inspect_forms.rs", "all_forms_are_answered_on_global_and_in_a_zone"),
            ("tests/e2e/doors/openapi.rs", "answers_are_as_they_are_described"),
        ],
        stays: &[],
    },
    Row {
        number: 2,
        what: "deep validation of every kind",
        tests: &[
            (WRITTEN, "what_kuma_refuses_is_refused_with_the_field"),
            ("common/rest/tests/kept.rs", "of_every_kind_what_is_wrong_is_read_corrected_and_deleted"),
        ],
        stays: &["a negative duration in a Timeout or a Retry"],
    },
    Row {
        number: 3,
        what: "defaults filled in, durations as Go writes them",
        tests: &[
            (WRITTEN, "what_is_left_out_is_filled_in"),
            ("common/rest/tests/settled.rs", "what_is_settled_stays_as_it_is"),
        ],
        stays: &[],
    },
    Row {
        number: 4,
        what: "the first policies of a mesh",
        tests: &[(WRITTEN, "a_mesh_begins_with_the_policies_of_kuma")],
        stays: &[],
    },
    Row {
        number: 5,
        what: "authorities that are not there, a collector without a port",
        tests: &[(WRITTEN, "what_kuma_refuses_is_refused_with_the_field")],
        stays: &[],
    },
    Row {
        number: 6,
        what: "a page at /gui",
        tests: &[("tests/e2e/page.rs", "the_page_in_a_browser"), (READ, "a_control_plane_describes_itself")],
        stays: &[],
    },
    Row {
        number: 7,
        what: "warnings of what is out of date",
        tests: &[(WRITTEN, "what_is_out_of_date_is_warned_of")],
        stays: &["a member that no spec has"],
    },
    Row {
        number: 8,
        what: "insights of services, meshes and everything",
        tests: &[
            (READ, "insights_say_what_kumas_say"),
            ("common/rest/tests/insights.rs", "services_are_told_apart_by_type_and_address"),
            ("common/rest/tests/insights.rs", "who_has_not_told_its_version_is_counted_too"),
        ],
        stays: &[],
    },
    Row {
        number: 9,
        what: "the form of Kubernetes",
        tests: &[(READ, "everything_is_shown_in_the_form_of_kubernetes")],
        stays: &["labels in the form of Kubernetes"],
    },
    Row {
        number: 10,
        what: "levels of logs, names of metrics, settings",
        tests: &[
            ("tests/cli/references.rs", "the_page_of_metrics_says_what_there_is"),
            ("tests/cli/references.rs", "the_page_of_settings_says_what_there_is"),
        ],
        stays: &[
            "somebody looks at the levels of logs",
            "These are Kuma's and have no effect",
            "These of Kuma's have no counterpart",
        ],
    },
    Row {
        number: 11,
        what: "streams and generation in the insight of a zone",
        tests: &[(READ, "insights_say_what_kumas_say")],
        stays: &[],
    },
    Row {
        number: 12,
        what: "slashes at the end, methods nobody serves",
        tests: &[(ASKED, "paths_and_methods_are_answered_as_kuma_does")],
        stays: &["`HEAD` of what `GET` shows", "`…/_config`"],
    },
    Row {
        number: 13,
        what: "titles of errors",
        tests: &[(ASKED, "errors_have_the_titles_of_kuma")],
        stays: &[],
    },
    Row {
        number: 14,
        what: "names of kinds for people",
        tests: &[(READ, "a_control_plane_describes_itself")],
        stays: &[],
    },
    Row {
        number: 15,
        what: "secrets the control plane makes",
        tests: &[(READ, "a_control_plane_describes_itself")],
        stays: &["Secrets that the control plane makes carry the label", "the global secret `inter-cp-ca`"],
    },
    Row {
        number: 16,
        what: "protocols of a MeshExternalService",
        tests: &[(WRITTEN, "what_kuma_refuses_is_refused_with_the_field")],
        stays: &[],
    },
    Row {
        number: 17,
        what: "errors of protobuf bodies",
        tests: &[("tests/e2e/bad_input/rest.rs", "global_says_what_is_wrong_and_lives")],
        stays: &["a member of a protobuf spec has a wrong type"],
    },
    Row {
        number: 18,
        what: "recorded cases of writing",
        tests: &[
            (WRITTEN, "every_kind_is_written_by_the_same_rules"),
            (ASKED, "every_list_has_the_same_pages_and_filters"),
        ],
        stays: &[],
    },
];

#[test]
fn every_row_has_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/compatibility.md")).unwrap();
    let mut table = String::from("what differed from Kuma, and what shows that it does not\n");
    for (at, row) in ROWS.iter().enumerate() {
        assert_eq!(row.number, at + 1, "no row is left out");
        assert!(!row.tests.is_empty(), "{} has a test", row.what);
        let _fits = writeln!(table, "{:>3}  {}", row.number, row.what);
        for (file, test) in row.tests {
            let source =
                fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(source.contains(&format!("fn {test}(")), "there is no test {test} in {file}");
            let _fits = writeln!(table, "       {file}: {test}");
        }
        for words in row.stays {
            assert!(page.contains(words), "docs/compatibility.md says nothing of {words:?}");
            let _fits = writeln!(table, "       stays, docs/compatibility.md: {words}");
        }
    }
    say(&table);
}
