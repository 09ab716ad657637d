//! What a dashboard of Grafana is made of, and its JSON.

use serde_json::{Value, json};

/// A dashboard. Each row answers one question.
pub(crate) struct Board {
    pub(crate) uid: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// Names a label, and the series whose values of it can be chosen.
    pub(crate) variables: Vec<(&'static str, &'static str)>,
    pub(crate) rows: Vec<Row>,
}

/// Panels beside each other, under the question they answer.
pub(crate) struct Row {
    pub(crate) question: &'static str,
    pub(crate) panels: Vec<Panel>,
}

/// How a panel shows what it asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The last value in large letters, red when it is not 0.
    Trouble,
    /// The last value in large letters, red when it is 0.
    Alive,
    /// The last value in large letters.
    Number,
    /// Lines over time.
    Lines,
}

/// One panel.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// What is seen, and what to do when it looks wrong.
    pub(crate) description: &'static str,
    pub(crate) shape: Shape,
    /// As Grafana calls it.
    pub(crate) unit: &'static str,
    /// Expressions, each with what its lines are called.
    pub(crate) queries: Vec<(String, &'static str)>,
}

pub(crate) fn row(question: &'static str, panels: Vec<Panel>) -> Row {
    Row { question, panels }
}

pub(crate) fn panel(
    shape: Shape,
    title: &'static str,
    unit: &'static str,
    description: &'static str,
    queries: impl IntoIterator<Item = (String, &'static str)>,
) -> Panel {
    Panel { title, description, shape, unit, queries: queries.into_iter().collect() }
}

/// The 50th and the 99th percentile of a histogram, from its increase.
pub(crate) fn percentiles(metric: &str, chosen: &str) -> [(String, &'static str); 2] {
    let of = |share: &str| {
        format!(
            "histogram_quantile({share}, sum by (le) (rate({metric}_bucket{{{chosen}}}[$__rate_interval])))"
        )
    };
    [(of("0.5"), "half"), (of("0.99"), "99 of 100")]
}

/// Units of a grid of Grafana in a row.
const WIDTH: usize = 24;

impl Board {
    /// Its JSON, in which every panel has a number of its own.
    pub(crate) fn json(&self) -> Value {
        let (mut panels, mut y, mut id) = (Vec::new(), 0, 0);
        for row in &self.rows {
            id += 1;
            panels.push(json!({
                "id": id, "type": "row", "title": row.question, "collapsed": false, "panels": [],
                "gridPos": { "h": 1, "w": WIDTH, "x": 0, "y": y },
            }));
            y += 1;
            // As many beside each other as can be read.
            for line in lines(&row.panels) {
                let width = WIDTH / line.len();
                let height = if line.iter().all(|panel| panel.shape != Shape::Lines) { 4 } else { 8 };
                for (at, panel) in line.iter().enumerate() {
                    id += 1;
                    let place = json!({ "h": height, "w": width, "x": at * width, "y": y });
                    panels.push(panel.json(id, &place));
                }
                y += height;
            }
        }
        json!({
            "uid": self.uid, "title": self.title, "description": self.description, "tags": ["strait"],
            "schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1, "refresh": "30s",
            "time": { "from": "now-1h", "to": "now" }, "timezone": "", "annotations": { "list": [] },
            "links": [{ "type": "dashboards", "title": "Strait", "tags": ["strait"], "asDropdown": true,
                "includeVars": false, "keepTime": true }],
            "templating": { "list": self.templates() },
            "panels": panels,
        })
    }

    fn templates(&self) -> Vec<Value> {
        let source = json!({
            "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
            "current": {}, "hide": 0, "includeAll": false, "multi": false, "options": [], "refresh": 1, "regex": "",
        });
        let chosen = self.variables.iter().map(|(name, series)| {
            let query = format!("label_values({series}, {name})");
            json!({
                "name": name, "label": name, "type": "query", "datasource": source_of_choice(),
                "definition": query, "query": { "query": query, "refId": format!("{name}-values") },
                "current": {}, "hide": 0, "includeAll": true, "allValue": ".*", "multi": true, "options": [],
                "refresh": 2, "regex": "", "sort": 1,
            })
        });
        std::iter::once(source).chain(chosen).collect()
    }
}

/// Panels that go into one line: numbers eight at most, lines three.
fn lines(panels: &[Panel]) -> Vec<Vec<&Panel>> {
    let mut lines: Vec<Vec<&Panel>> = Vec::new();
    for panel in panels {
        let most = if panel.shape == Shape::Lines { 3 } else { 8 };
        match lines.last_mut() {
            Some(line)
                if line.len() < most && (line[0].shape == Shape::Lines) == (panel.shape == Shape::Lines) =>
            {
                line.push(panel);
            }
            _ => lines.push(vec![panel]),
        }
    }
    lines
}

fn source_of_choice() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

impl Panel {
    fn json(&self, id: usize, place: &Value) -> Value {
        let is_number = self.shape != Shape::Lines;
        let targets = self.queries.iter().zip('A'..).map(|((expression, legend), letter)| {
            json!({
                "refId": letter.to_string(), "datasource": source_of_choice(), "expr": expression,
                "legendFormat": legend, "instant": is_number, "range": !is_number,
            })
        });
        let steps = match self.shape {
            Shape::Trouble => {
                json!([{ "color": "green", "value": null }, { "color": "red", "value": 0.001 }])
            }
            Shape::Alive => json!([{ "color": "red", "value": null }, { "color": "green", "value": 0.001 }]),
            Shape::Number | Shape::Lines => json!([{ "color": "blue", "value": null }]),
        };
        let colour = if is_number { "thresholds" } else { "palette-classic" };
        let custom = json!({
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false,
        });
        let mut defaults = json!({
            "unit": self.unit, "min": 0, "mappings": [], "color": { "mode": colour },
            "thresholds": { "mode": "absolute", "steps": steps },
        });
        let options = if is_number {
            json!({
                "colorMode": "background", "graphMode": "none", "justifyMode": "auto", "orientation": "auto",
                "textMode": "auto", "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
            })
        } else {
            defaults["custom"] = custom;
            json!({
                "legend": { "displayMode": "table", "placement": "bottom", "showLegend": true,
                    "calcs": ["lastNotNull", "max"] },
                "tooltip": { "mode": "multi", "sort": "desc" },
            })
        };
        json!({
            "id": id, "type": if is_number { "stat" } else { "timeseries" }, "title": self.title,
            "description": self.description, "datasource": source_of_choice(), "gridPos": place,
            "fieldConfig": { "defaults": defaults, "overrides": [] }, "options": options,
            "targets": targets.collect::<Vec<_>>(),
        })
    }
}
