//! Texts that are hard to read: deep, wide, long, repeated, and referring to themselves.

/// Texts of about `size` bytes, each with a name.
pub fn of(size: usize) -> Vec<(&'static str, String)> {
    let fill = |before: &str, piece: &str, after: &str| {
        format!("{before}{}{after}", piece.repeat(size / piece.len()))
    };
    let ladder = |piece: &str| {
        let mut text = String::new();
        for depth in 0.. {
            if text.len() > size {
                break;
            }
            text.push_str(&" ".repeat(depth));
            text.push_str(piece);
        }
        text
    };
    let numbered = |line: fn(usize) -> String| {
        let mut text = String::new();
        for i in 0.. {
            if text.len() > size {
                break;
            }
            text.push_str(&line(i));
        }
        text
    };
    vec![
        ("open objects", fill("", "{a: ", "")),
        ("open lists", fill("", "[", "")),
        ("open both", fill("", "[{", "")),
        ("open keys", fill("", "? ", "")),
        ("open entries", fill("", "- ", "")),
        ("open lists in keys", fill("? ", "[", "")),
        ("a ladder of objects", ladder("a:\n")),
        ("a ladder of entries", ladder("-\n")),
        ("closed lists", fill("", "]", "")),
        ("empty lists", fill("[", "[],", "]")),
        ("wide list", fill("[", "a,", "]")),
        ("pairs in a list", fill("[", "a: b,", "]")),
        ("long flow key", fill("{", "k", ": 1}")),
        ("long key", fill("", "k", ": 1")),
        ("key without end", fill("{a", " \n", "")),
        ("same key", fill("", "k: v\n", "")),
        ("many keys", numbered(|i| format!("k{i}: v\n"))),
        ("many anchors", numbered(|i| format!("- &a{i} x\n"))),
        ("many aliases", fill("- &a x\n", "- *a\n", "")),
        ("merged", fill("b: &b {x: 1}\n", "a: {<<: *b}\n", "")),
        (
            "a bomb of aliases",
            numbered(|i| match i {
                0 => "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(),
                _ => format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(",")),
            }),
        ),
        ("tags", fill("", "!", "")),
        ("tags apart", fill("", "! ", "")),
        ("tagged entries", fill("", "- !!str a\n", "")),
        ("directive", fill("", "%", "")),
        ("directives", fill("", "%YAML 1.2\n", "")),
        ("tag directives", numbered(|i| format!("%TAG !e{i}! tag:x,2000:\n"))),
        ("open quote", fill("\"", "a ", "")),
        ("quotes", fill("", "\"", "")),
        ("escapes", fill("\"", "\\x41", "\"")),
        ("folded quote", fill("\"", "\n", "")),
        ("single quotes", fill("", "'", "")),
        ("comments", fill("", "#\n", "")),
        ("comments in a list", fill("[", " #\n", "")),
        ("tabs", fill("a:", "\t", "b")),
        ("spaces", fill("", " ", "")),
        ("lines", fill("", "\n", "")),
        ("carriage returns", fill("", "\r", "")),
        ("documents", fill("", "---\n", "")),
        ("ends of documents", fill("", "...\n", "")),
        ("block", fill("a: |\n", "  x\n", "")),
        ("folded block", fill("a: >\n", " x\n\n", "")),
        ("plain lines", fill("", "a\n", "")),
        ("plain lines in a list", fill("[", "a\n", "")),
        ("colons", fill("", ": ", "")),
        ("a number", fill("", "9", "")),
        ("NUL", fill("", "\0", "")),
        ("byte order marks", fill("", "\u{feff}", "")),
        ("line separators", fill("", "a\u{2028}", "")),
        (
            "JSON strings",
            numbered(|i| match i {
                0 => "[\"\"".to_owned(),
                _ => ",\"\"".to_owned(),
            }),
        ),
    ]
}
