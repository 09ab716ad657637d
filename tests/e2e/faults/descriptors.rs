//! A limit of open files that is far too low.

use std::{net::TcpStream, sync::Arc};

use super::writers::{Book, Writers};
use crate::harness::{Global, Options};

#[tokio::test]
async fn sixty_four_open_files_are_enough_to_lose_nothing() {
    let limited = Options::default().by(&["prlimit", "--nofile=64:64"]);
    let mut global = Global::start_with(limited).await;
    let book = Arc::new(Book::default());
    for round in 0..3 {
        let writers = Writers::on(&global, &book, round);
        writers.more(20).await;
        // More connections than the process may have files, and none of them says anything.
        let address = global.url("").trim_start_matches("http://").to_owned();
        let silent: Vec<TcpStream> = (0..100).filter_map(|_| TcpStream::connect(&address).ok()).collect();
        assert!(silent.len() > 64, "{} connections", silent.len());
        // Whoever is connected already is served.
        writers.more(20).await;
        drop(silent);
        writers.more(20).await;
        writers.end().await;
        global.ready().await;
        book.check(&global).await;
        assert!(global.process.runs());
    }
    global.process.kill();
    global.start_again().await;
    book.check(&global).await;
    book.print("limit of 64 open files", 3);
}
