//! The tables in a terminal, made anew while somebody looks.

use std::{convert::Infallible, time::Duration};

use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Color, Style, Stylize},
    text::Line,
    widgets::{Row, Table, TableState},
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

use super::board::{Board, BoardTable};
use crate::{inspect::RowTrouble, output};

/// Rows a page key moves by.
const PAGE: u16 = 20;
/// Widest column; what is longer is cut.
const WIDEST: usize = 40;
/// Looking takes at most this part of the time, so that one who looks on is no load.
const REST: u32 = 4;

/// What was seen last.
#[derive(Clone, Debug, Default)]
struct SeenBoard {
    board: Board,
    /// Why there is nothing newer.
    error: Option<String>,
}

/// Shows what `look` gives until somebody has seen enough.
pub(super) async fn show(
    look: impl AsyncFn() -> anyhow::Result<Board>,
    begins: usize,
    interval: Duration,
) -> anyhow::Result<()> {
    let (seen, newest) = watch::channel(SeenBoard::default());
    let looking = async {
        loop {
            let began = Instant::now();
            match look().await {
                Ok(board) => seen.send_replace(SeenBoard { board, error: None }),
                Err(error) => {
                    let board = seen.borrow().board.clone();
                    seen.send_replace(SeenBoard { board, error: Some(format!("{error:#}")) })
                }
            };
            sleep(interval.max(began.elapsed() * REST)).await;
        }
    };
    let mut terminal = ratatui::try_init()?;
    let done = tokio::select! {
        done = attend(&mut terminal, TopView { table: begins, ..TopView::default() }, newest) => done,
        never = looking => { let never: Infallible = never; match never {} }
    };
    ratatui::restore();
    done
}

/// Draws whenever there is something new, or a key was pressed.
async fn attend(
    terminal: &mut DefaultTerminal,
    mut view: TopView,
    mut newest: watch::Receiver<SeenBoard>,
) -> anyhow::Result<()> {
    let (told, mut keys) = mpsc::channel(16);
    // It ends with the process: reading a terminal cannot be given up.
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if told.blocking_send(event).is_err() {
                return;
            }
        }
    });
    loop {
        let seen = newest.borrow_and_update().clone();
        terminal.draw(|frame| view.draw(&seen, frame))?;
        tokio::select! {
            changed = newest.changed() => changed?,
            event = keys.recv() => match event {
                None => return Ok(()),
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release && !view.press(key, &seen.board) => {
                    return Ok(());
                }
                Some(_) => {}
            },
        }
    }
}

/// What somebody looks at.
#[derive(Debug, Default)]
struct TopView {
    table: usize,
    rows: TableState,
    /// What rows are chosen by, and whether it is being typed.
    chosen_by: String,
    types: bool,
}

impl TopView {
    /// Takes in a key; says whether to go on.
    fn press(&mut self, key: KeyEvent, board: &Board) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return false;
        }
        match key.code {
            KeyCode::Enter | KeyCode::Esc if self.types => self.types = false,
            KeyCode::Backspace if self.types => drop(self.chosen_by.pop()),
            KeyCode::Char(c) if self.types => self.chosen_by.push(c),
            KeyCode::Char('/') => (self.types, self.chosen_by) = (true, String::new()),
            KeyCode::Esc if !self.chosen_by.is_empty() => self.chosen_by.clear(),
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Tab | KeyCode::BackTab => {
                self.table = (self.table + 1) % board.tables.len().max(1);
                self.rows = TableState::default();
            }
            KeyCode::Down | KeyCode::Char('j') => self.rows.scroll_down_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.rows.scroll_up_by(1),
            KeyCode::PageDown => self.rows.scroll_down_by(PAGE),
            KeyCode::PageUp => self.rows.scroll_up_by(PAGE),
            KeyCode::Home => self.rows.select_first(),
            KeyCode::End => self.rows.select_last(),
            _ => {}
        }
        true
    }

    fn draw(&mut self, seen: &SeenBoard, frame: &mut Frame<'_>) {
        let [top, middle, bottom] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
                .areas(frame.area());
        let tables = &seen.board.tables;
        let Some(table) = tables.get(self.table).or_else(|| tables.last()) else {
            let waits = seen.error.clone().unwrap_or_else(|| "looking".to_owned());
            return frame.render_widget(Line::raw(output::in_line(&waits).into_owned()), top);
        };
        let title = format!("{}: {}", seen.board.title, table.summary());
        frame.render_widget(Line::raw(output::in_line(&title).into_owned()).bold(), top);
        frame.render_stateful_widget(rows(table, &self.chosen_by), middle, &mut self.rows);
        frame.render_widget(self.foot(seen), bottom);
    }

    fn foot(&self, seen: &SeenBoard) -> Line<'static> {
        match &seen.error {
            Some(error) => Line::raw(output::in_line(error).into_owned()).fg(Color::Red),
            None if self.types || !self.chosen_by.is_empty() => Line::raw(format!("/{}", self.chosen_by)),
            None => Line::raw("q: leave   Tab: other table   arrows: move   /: choose").dim(),
        }
    }
}

fn rows<'a>(table: &'a BoardTable, chosen_by: &'a str) -> Table<'a> {
    let chosen: Vec<_> = table.chosen(chosen_by).collect();
    let width = |at: usize| {
        let cells = chosen.iter().filter_map(|(_, cells)| cells.get(at));
        let longest = cells.map(|cell| output::in_line(cell).chars().count()).max().unwrap_or_default();
        longest.max(table.headings[at].len()).min(WIDEST)
    };
    let widths =
        (0..table.headings.len()).map(|at| Constraint::Length(u16::try_from(width(at)).unwrap_or(u16::MAX)));
    let widths: Vec<Constraint> = widths.collect();
    let shown = chosen.iter().map(|(trouble, cells)| {
        let color = match trouble {
            RowTrouble::Away => Style::new().fg(Color::Red),
            RowTrouble::Noted => Style::new().fg(Color::Yellow),
            RowTrouble::None => Style::new(),
        };
        Row::new(cells.iter().map(|cell| output::in_line(cell))).style(color)
    });
    Table::new(shown, widths)
        .header(Row::new(table.headings.clone()).bold())
        .column_spacing(2)
        .row_highlight_style(Style::new().reversed())
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    fn seen() -> SeenBoard {
        let row = |trouble, name: &str, status: &str| (trouble, vec![name.to_owned(), status.to_owned()]);
        let zones =
            [row(RowTrouble::None, "east", "online"), row(RowTrouble::Away, "west\u{1b}[2J", "offline")];
        let proxies = (0..50).map(|n| row(RowTrouble::None, &format!("web-{n:02}"), "online"));
        let tables = vec![
            BoardTable::new("zones", &["NAME", "STATUS"], zones.into_iter()),
            BoardTable::new("proxies", &["NAME", "STATUS"], proxies),
        ];
        SeenBoard { board: Board { title: "global".to_owned(), tables }, error: None }
    }

    fn drawn(view: &mut TopView, seen: &SeenBoard) -> String {
        let mut terminal = Terminal::new(TestBackend::new(60, 8)).expect("it has no way to fail");
        terminal.draw(|frame| view.draw(seen, frame)).expect("it has no way to fail");
        terminal.backend().to_string()
    }

    fn press(view: &mut TopView, code: KeyCode) -> bool {
        view.press(KeyEvent::new(code, KeyModifiers::NONE), &seen().board)
    }

    #[test]
    fn the_worst_zone_stands_first_and_moves_no_terminal() {
        let shown = drawn(&mut TopView::default(), &seen());
        let lines: Vec<&str> = shown.lines().map(|line| line.trim_matches(['"', ' '])).collect();
        assert_eq!(lines[0], "global: 2 zones, 1 away, 0 with something to know");
        assert!(lines[2].starts_with("west\\u{1b}[2J") && lines[3].starts_with("east"), "{shown}");
    }

    #[test]
    fn keys_turn_move_choose_and_leave() {
        let (mut view, seen) = (TopView::default(), seen());
        assert!(press(&mut view, KeyCode::Tab));
        assert!(drawn(&mut view, &seen).contains("web-00"));
        assert!(press(&mut view, KeyCode::End));
        let shown = drawn(&mut view, &seen);
        assert!(shown.contains("web-49") && !shown.contains("web-00"), "{shown}");
        for key in ['/', '2', '7'] {
            assert!(press(&mut view, KeyCode::Char(key)));
        }
        let shown = drawn(&mut view, &seen);
        assert!(shown.contains("web-27") && !shown.contains("web-26") && shown.contains("/27"), "{shown}");
        assert!(press(&mut view, KeyCode::Enter) && press(&mut view, KeyCode::Esc));
        assert!(drawn(&mut view, &seen).contains("q: leave"));
        assert!(!press(&mut view, KeyCode::Char('q')));
    }

    #[test]
    fn what_was_seen_stays_when_the_control_plane_does_not_answer() {
        let lost = SeenBoard { error: Some("connection refused".to_owned()), ..seen() };
        let shown = drawn(&mut TopView::default(), &lost);
        assert!(shown.contains("east") && shown.contains("connection refused"), "{shown}");
    }
}
