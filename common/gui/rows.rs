//! The rows on one page of a table over one or several lists of the API. No more is read than is shown.

use maud::Markup;
use serde_json::Value;

use super::{
    Gui,
    parts::{ROWS, items},
    visit::{Unanswered, Visit},
};

/// Cells of one row.
pub(super) type Row = Vec<Markup>;

/// One page of lists that follow one another.
pub(super) struct PageRows {
    /// Items that still lie before the page.
    before: usize,
    pub(super) rows: Vec<Row>,
    /// Items of all lists.
    pub(super) total: usize,
}

/// What is kept of an answer.
struct ListPart {
    rows: Vec<Row>,
    total: usize,
    has_more: bool,
}

impl PageRows {
    /// Of the page with this number, from 0.
    pub(super) fn of(page: usize) -> Self {
        Self { before: page.saturating_mul(ROWS), rows: Vec::new(), total: 0 }
    }

    /// Goes on with the list at `path`, each item as the row that `row` makes of it.
    pub(super) async fn add(
        &mut self,
        gui: &Gui,
        visit: &Visit,
        path: &str,
        row: impl Fn(&Value) -> Row + Clone + Send + 'static,
    ) -> Result<(), Unanswered> {
        let mut offset = self.before;
        let mut is_first = true;
        loop {
            let room = ROWS.saturating_sub(self.rows.len());
            let separator = if path.contains('?') { '&' } else { '?' };
            // Of a list behind the page only its length matters.
            let asked = format!("{path}{separator}size={}&offset={offset}", room.max(1));
            let row = row.clone();
            let read = move |list: Value| ListPart {
                rows: items(&list["items"]).iter().take(room).map(row).collect(),
                total: count(&list["total"]),
                has_more: list["next"].is_string(),
            };
            let part = gui.part(visit, &asked, read).await?;
            if std::mem::take(&mut is_first) {
                self.total += part.total;
                self.before = self.before.saturating_sub(part.total);
            }
            let found = part.rows.len();
            self.rows.extend(part.rows);
            // An answer ends where it becomes long, and the next one begins there.
            if found == 0 || !part.has_more || self.rows.len() >= ROWS {
                return Ok(());
            }
            offset += found;
        }
    }
}

/// A number in an answer.
pub(super) fn count(number: &Value) -> usize {
    number.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
}
