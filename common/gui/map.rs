//! The federation as a picture: global, the zones below it, how far each is behind, and who reaches whom.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::{
    federation::{Federation, SeenZone},
    lag::{LagRecord, POINTS},
    parts::tone,
    visit::encode,
};
use crate::ages;

const WIDTH: usize = 216;
const HEIGHT: usize = 132;
const GAP: usize = 24;
const TOP: usize = 62;
const WIRE: usize = 46;
const BETWEEN: usize = 34;
/// More of them are in the table only.
const SHOWN: usize = 60;
/// Of so many it is drawn who reaches whom; more lines show nothing.
const REACH: usize = 4;

/// Where something stands.
#[derive(Clone, Copy)]
struct MapPlace {
    x: usize,
    y: usize,
}

/// Draws it.
pub(super) fn draw(seen: &Federation, lags: &LagRecord, now: DateTime<Utc>) -> Markup {
    let mut zones: Vec<&SeenZone> = seen.zones.iter().collect();
    let is_of_one_zone = seen.own.is_some();
    if zones.len() > SHOWN {
        // Those with trouble first.
        zones.sort_by_key(|zone| (zone.state == "online", zone.name.clone()));
        zones.truncate(SHOWN);
    }
    let columns = match zones.len() {
        0 | 1 => 1,
        few @ 2..=4 => few,
        5..=12 => 4,
        _ => 6,
    };
    let rows = zones.len().div_ceil(columns);
    let width = (columns.max(2) * (WIDTH + GAP) + GAP).max(560);
    let reach = zones.len() <= REACH && !seen.ways_in.is_empty();
    let height = TOP + WIRE + rows * (HEIGHT + BETWEEN) - BETWEEN + if reach { 52 } else { 6 };
    let left = (width - (columns * (WIDTH + GAP) - GAP)) / 2;
    let place = |n: usize| MapPlace {
        x: left + (n % columns) * (WIDTH + GAP),
        y: TOP + WIRE + (n / columns) * (HEIGHT + BETWEEN),
    };
    let middle = width / 2;
    let words: Vec<String> = zones.iter().map(|zone| format!("{} {}", zone.name, zone.state)).collect();
    html! {
        div.scroll tabindex="0" role="group" aria-label="Map of the federation" {
            svg.map viewBox={ "0 0 " (width) " " (height) } role="img" aria-label={ "Global and its zones: " (words.join(", ")) } {
                @for (n, zone) in zones.iter().enumerate() {
                    @let at = place(n);
                    @if !is_of_one_zone || n == 0 && seen.link.is_some() {
                        @let x = at.x + WIDTH / 2;
                        path class={ "wire " (wire(seen, zone)) }
                            d={ "M" (middle) " " (TOP - 8) " C" (middle) " " (TOP + WIRE) " " (x) " " (at.y - WIRE) " " (x) " " (at.y) } {}
                    }
                }
                @if reach { (reaches(seen, &zones, place)) }
                (global(seen, middle))
                @for (n, zone) in zones.iter().enumerate() { (card(seen, zone, place(n), lags, now)) }
            }
        }
    }
}

/// How the line between a zone and global is drawn.
fn wire(seen: &Federation, zone: &SeenZone) -> &'static str {
    match &seen.link {
        Some(link) if link["heldBack"].is_string() => "warn",
        Some(link) if link["connected"] == true || link["standby"] == true => "good",
        Some(_) => "bad",
        None => tone(&zone.state).0,
    }
}

fn global(seen: &Federation, middle: usize) -> Markup {
    let x = middle - 120;
    let (title, below) = match (&seen.own, &seen.link) {
        (None, _) => {
            let online = seen.zones.iter().filter(|zone| zone.state == "online").count();
            ("global".to_owned(), format!("{online} of {} zones online", seen.zones.len()))
        }
        (Some(_), Some(link)) if link["standby"] == true => {
            ("global".to_owned(), "another instance follows it".to_owned())
        }
        (Some(_), Some(link)) if link["connected"] == true => ("global".to_owned(), "connected".to_owned()),
        (Some(_), Some(_)) => ("global".to_owned(), "not connected".to_owned()),
        (Some(_), None) => ("no global".to_owned(), "this zone stands alone".to_owned()),
    };
    html! {
        rect.box x=(x) y="6" width="240" height=(TOP - 14) rx="6" {}
        text.title x=(middle) y="26" text-anchor="middle" { (title) }
        text.small x=(middle) y="43" text-anchor="middle" { (below) }
    }
}

fn card(seen: &Federation, zone: &SeenZone, at: MapPlace, lags: &LagRecord, now: DateTime<Utc>) -> Markup {
    let MapPlace { x, y } = at;
    let (tone, sign) = tone(&zone.state);
    let is_own = seen.own.as_deref() == Some(zone.name.as_str());
    let told = match (&seen.link, is_own) {
        (Some(link), true) => link,
        _ => &zone.told,
    };
    let state = match zone.state.as_str() {
        _ if is_own => format!("{sign} this zone"),
        "" => "known by its ingress".to_owned(),
        state if told["since"].is_string() => {
            format!("{sign} {state} for {}", ages::age(&told["since"], now))
        }
        state => format!("{sign} {state}"),
    };
    let ways: Vec<_> = seen.ways_into(&zone.name).collect();
    let way = match ways.as_slice() {
        [] => "no ingress".to_owned(),
        [one] => format!("ingress {}", one.address),
        [one, rest @ ..] => format!("ingress {} and {} more", one.address, rest.len()),
    };
    let peer = if is_own { "global" } else { zone.name.as_str() };
    let series = lags.series(peer, now);
    let lag = |direction: &str| told[direction]["lag"].as_u64();
    html! {
        a href={ "/gui/zones/" (encode(&zone.name)) } aria-label={ "Zone " (zone.name) ", " (state) } {
            rect class={ "box " (tone) } x=(x) y=(y) width=(WIDTH) height=(HEIGHT) rx="6" {}
            text.title x=(x + 12) y=(y + 22) { (clipped(&zone.name, 24)) }
            text class={ "small " (tone) } x=(x + 12) y=(y + 40) { (state) }
            @if let Some(dataplanes) = told["dataplanes"].as_u64() {
                text.small x=(x + WIDTH - 12) y=(y + 22) text-anchor="end" { (dataplanes) " dp" }
            }
            text.small x=(x + 12) y=(y + 57) { (clipped(&way, 34)) }
            @for (n, (word, direction)) in [("↓ behind", "down"), ("↑ behind", "up")].into_iter().enumerate() {
                @if let Some(lag) = lag(direction) {
                    @let base = y + 84 + n * 30;
                    text.small x=(x + 12) y=(base) { (word) " " (lag) }
                    @let values: Vec<u64> = series.iter().map(|(down, up)| if n == 0 { *down } else { *up }).collect();
                    (spark(&values, x + 96, base, 108))
                }
            }
        }
    }
}

/// The last minutes as a line that stands on `y`.
fn spark(values: &[u64], x: usize, y: usize, width: usize) -> Markup {
    const UP: u64 = 16;
    let most = values.iter().copied().max().unwrap_or_default().max(1);
    let missing = POINTS.saturating_sub(values.len());
    let points: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(n, value)| {
            let at = x + (missing + n) * width / (POINTS - 1);
            let up = usize::try_from(value * UP / most).unwrap_or_default();
            format!("{at},{}", y.saturating_sub(up))
        })
        .collect();
    html! {
        line.base x1=(x) y1=(y + 1) x2=(x + width) y2=(y + 1) {}
        @if points.len() > 1 {
            polyline class={ "spark" (if values.last().is_some_and(|last| *last > 0) { " late" } else { "" }) } points=(points.join(" ")) {
                title { "the last ten minutes, " (most) " at most" }
            }
        }
    }
}

/// Arrows from each zone to those with an ingress.
fn reaches(seen: &Federation, zones: &[&SeenZone], place: impl Fn(usize) -> MapPlace) -> Markup {
    let below = |n: usize| (place(n).x + WIDTH / 2, place(n).y + HEIGHT);
    let mut arrows = Vec::new();
    for (to, target) in zones.iter().enumerate() {
        let ways: Vec<_> = seen.ways_into(&target.name).filter(|way| !way.services.is_empty()).collect();
        if ways.is_empty() {
            continue;
        }
        let is_broken = ways.iter().all(|way| way.is_connected == Some(false)) || target.state == "offline";
        for from in (0..zones.len()).filter(|from| *from != to) {
            arrows.push((from, to, is_broken));
        }
    }
    html! {
        @for (from, to, is_broken) in arrows {
            @let ((x, y), (there, _)) = (below(from), below(to));
            // Both directions side by side.
            @let (x, there) = if from < to { (x + 14, there - 14) } else { (x - 14, there + 14) };
            @let deep = y + 14 + 22 * from.abs_diff(to).min(2) + if from < to { 0 } else { 6 };
            path class={ "reach" (if is_broken { " bad" } else { "" }) } d={ "M" (x) " " (y) " C" (x) " " (deep) " " (there) " " (deep) " " (there) " " (y + 7) } {
                title { (zones[from].name) " reaches " (zones[to].name) " through its ingress" }
            }
            path.tip d={ "M" (there) " " (y) " l-4 8 h8 z" } {}
        }
    }
}

fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}
