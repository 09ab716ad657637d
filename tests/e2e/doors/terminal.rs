//! What others said reaches the terminal of an operator as text, whoever answered: nothing in it is an order, and no
//! line of a table is made up.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    process::{Command, Output},
};

use serde_json::{Value, json};

/// Sets the title, clears the screen, turns the writing, and would begin another line.
const ORDERS: &str = "x\u{1b}]0;t\u{7}\u{1b}[2J\u{9b}31m\u{202e}\rforged\nforged";

/// Whoever answers every request with this, until the test ends.
fn answering(status: u16, body: &Value) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let body = body.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let head = BufReader::new(&stream).lines().map_while(Result::ok);
            head.take_while(|line| !line.is_empty()).for_each(drop);
            let length = body.len();
            let _gone = write!(
                &stream,
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
                 connection: close\r\n\r\n{body}"
            );
        }
    });
    address
}

fn straitctl(address: SocketAddr, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straitctl"));
    command.args(["--address", &format!("http://{address}"), "--token", "none"]).args(args);
    command.output().unwrap()
}

fn assert_plain(what: &str, printed: &[u8]) {
    let text = String::from_utf8(printed.to_vec()).unwrap();
    let order = text.chars().find(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || *c == '\u{202e}');
    assert_eq!(order, None, "{what} prints {text:?}");
}

#[test]
fn what_others_say_is_no_order_for_a_terminal() {
    let item = json!({
        "type": "Mesh", "mesh": "default", "name": ORDERS, "creationTime": ORDERS, "modificationTime": ORDERS,
        "labels": { "kuma.io/zone": ORDERS, "kuma.io/display-name": ORDERS },
        "revision": 7, "author": ORDERS, "op": ORDERS, "at": ORDERS,
        "user": ORDERS, "from": ORDERS, "path": ORDERS, "outcome": ORDERS,
        "strait": { "status": ORDERS, "version": ORDERS, "notes": [ORDERS] },
    });
    let answer = json!({ "total": 1, "items": [item], "next": null, "zones": [item], "lastError": ORDERS });
    let asked: [&[&str]; 8] = [
        &["get", "meshes"],
        &["get", "zones"],
        &["inspect", "zones"],
        &["inspect", "dataplanes"],
        &["history"],
        &["audit"],
        &["link"],
        &["get", "mesh", "x"],
    ];
    let (well, badly) =
        (answering(200, &answer), answering(400, &json!({ "title": ORDERS, "detail": ORDERS })));
    let mut told = 0;
    for args in asked {
        for address in [well, badly] {
            let output = straitctl(address, args);
            let what = format!("straitctl {args:?}");
            assert_plain(&what, &output.stdout);
            assert_plain(&what, &output.stderr);
            let table = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(!table.lines().any(|line| line.starts_with("forged")), "{table}");
            let printed = format!("{table}{}", String::from_utf8_lossy(&output.stderr));
            told += usize::from(printed.contains("\\u{1b}"));
        }
    }
    assert!(told >= 12, "what was said is shown {told} times");
}
