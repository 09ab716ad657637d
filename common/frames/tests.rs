#![allow(clippy::unwrap_used)]

use std::{convert::Infallible, pin::pin, sync::mpsc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, poll, stream};
use proptest::{collection::vec, prelude::*};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use super::{FrameRoom, Frames, PREFIX, RoomShare};

fn room() -> FrameRoom {
    FrameRoom::new(64 << 20)
}

fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
    let frame = |message: &Vec<u8>| {
        [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
    };
    messages.iter().flat_map(frame).collect()
}

/// What is read of these bytes when they come in pieces of these sizes, and how it ends.
fn read(bytes: &[u8], sizes: &[usize], limit: usize) -> (Vec<Vec<u8>>, Option<Code>) {
    let (mut rest, mut pieces, mut sizes) = (bytes, Vec::new(), sizes.iter().copied().cycle());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).clamp(1, rest.len()));
        pieces.push(Ok::<_, Infallible>(Bytes::copy_from_slice(piece)));
        rest = after;
    }
    let mut requests = Frames::new(Body::from_stream(stream::iter(pieces)), limit, &room());
    let mut messages = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    loop {
        match runtime.block_on(requests.next()) {
            Some(Ok(message)) => messages.push(message.to_vec()),
            Some(Err(status)) => return (messages, Some(status.code())),
            None => return (messages, None),
        }
    }
}

proptest! {
    #[test]
    fn messages_are_the_same_however_they_come(
        messages in vec(vec(any::<u8>(), 0..40), 0..8), sizes in vec(1..60_usize, 1..8), cut in 0..400_usize,
    ) {
        let bytes = framed(&messages);
        prop_assert_eq!(read(&bytes, &sizes, 40), (messages.clone(), None));
        let cut = cut.min(bytes.len());
        let (whole, end) = read(&bytes[..cut], &sizes, 40);
        prop_assert!(messages.starts_with(&whole));
        prop_assert_eq!(end, (framed(&whole).len() != cut).then_some(Code::Internal));
    }
}

#[test]
fn what_is_too_large_or_compressed_ends_the_stream() {
    assert_eq!(read(&framed(&[vec![1; 41]])[..5], &[5], 40), (vec![], Some(Code::OutOfRange)));
    assert_eq!(read(&[1, 0, 0, 0, 0], &[2], 40), (vec![], Some(Code::Internal)));
}

fn gzipped(message: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(message).unwrap();
    let packed = packed.finish().unwrap();
    [&[1][..], &u32::try_from(packed.len()).unwrap().to_be_bytes(), &packed].concat()
}

#[test]
fn what_was_compressed_is_taken_up_to_the_limit_where_that_was_agreed_on() {
    let next = |bytes: Vec<u8>| {
        let mut frames = Frames::gzipped(Body::from(bytes), 1000, &room());
        futures::executor::block_on(frames.next()).unwrap()
    };
    assert_eq!(next(gzipped(&[7; 1000])).unwrap(), &[7; 1000][..]);
    assert_eq!(next(framed(&[vec![7; 3]])).unwrap(), &[7; 3][..], "it need not be");
    // A few bytes that become many.
    assert_eq!(next(gzipped(&[7; 1001])).unwrap_err().code(), Code::ResourceExhausted);
    let mut broken = gzipped(&[7; 1000]);
    broken[PREFIX] ^= 1;
    assert_eq!(next(broken).unwrap_err().code(), Code::Internal);
}

/// A buffer that grows with the largest message and stays so is what every stream would cost for as long as it lives.
#[tokio::test]
async fn nothing_is_kept_of_a_large_message_once_the_next_one_is_waited_for() {
    const LARGE: usize = 8 << 20;
    for plain in [true, false] {
        // Bytes that compression cannot make fewer.
        let mut state = 1_u32;
        let message: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(LARGE)
        .collect();
        let bytes = if plain { framed(&[message]) } else { gzipped(&message) };
        let pieces: Vec<_> =
            bytes.chunks(16 << 10).map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece))).collect();
        let endless = stream::iter(pieces).chain(stream::pending());
        let room = room();
        let mut frames = Frames::gzipped(Body::from_stream(endless), 2 * LARGE, &room);
        assert_eq!(frames.next().await.unwrap().unwrap().len(), LARGE);
        let waiting = timeout(Duration::from_millis(1), frames.next()).await;
        assert!(waiting.is_err(), "there is nothing more");
        assert_eq!((frames.came.len(), frames.begun.capacity()), (0, 0), "plain: {plain}");
        assert_eq!(room.memory.free(), 64 << 20);
    }
}

/// What comes of these pieces, and does not end with them.
fn unended(pieces: impl Stream<Item = Vec<u8>> + Send + 'static, room: &FrameRoom) -> Frames {
    let pieces = pieces.map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
    Frames::new(Body::from_stream(pieces.chain(stream::pending())), 1 << 20, room)
}

#[tokio::test]
async fn messages_that_are_not_finished_make_way_the_oldest_first() {
    const HALF: usize = 45;
    let room = FrameRoom::new(2 * HALF + 10);
    let half = || {
        let message = framed(&[vec![7; 2 * HALF]]);
        unended(stream::iter([message[..HALF].to_vec()]), &room)
    };
    let (mut oldest, mut younger, mut last) = (half(), half(), half());
    assert!(poll!(pin!(oldest.next())).is_pending());
    assert!(poll!(pin!(younger.next())).is_pending());
    assert_eq!(room.memory.free(), 10);
    assert!(poll!(pin!(last.next())).is_pending());
    let ended = oldest.next().await.unwrap().unwrap_err();
    assert_eq!(ended.code(), Code::ResourceExhausted);
    assert!(poll!(pin!(younger.next())).is_pending());
    // One that is whole as it comes takes up nothing.
    let mut whole = unended(stream::iter([framed(&[vec![7; 1000]])]), &room);
    assert_eq!(whole.next().await.unwrap().unwrap().len(), 1000);
    drop(younger);
    assert_eq!(room.memory.free(), HALF + 10, "the last one is there");
    drop((oldest, last));
    assert_eq!(room.memory.free(), 2 * HALF + 10);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_has_begun_has_to_keep_coming() {
    const LONG: usize = 100 << 10;
    let message = framed(&[vec![7; LONG]]);
    let room = FrameRoom::new(1 << 20);
    let mut silent = unended(stream::iter([]), &room);
    assert!(timeout(Duration::from_secs(3600), silent.next()).await.is_err(), "nothing has begun");

    let begin = Instant::now();
    let mut stalled = unended(stream::iter([message[..LONG / 2].to_vec()]), &room);
    assert!(timeout(Duration::from_secs(9), stalled.next()).await.is_err(), "it can be asked again");
    assert_eq!(stalled.next().await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(begin.elapsed().as_secs(), 10);

    let slow = |room: &FrameRoom| {
        let pieces: Vec<_> = message.chunks(2 << 10).map(<[u8]>::to_vec).collect();
        let paced = stream::iter(pieces).then(async |piece| {
            sleep(Duration::from_secs(1)).await;
            piece
        });
        unended(paced, room)
    };
    assert_eq!(slow(&room).next().await.unwrap().unwrap().len(), LONG, "it may take its time");
    let (begin, patient) = (Instant::now(), room.clone().in_steps(Duration::from_secs(30)));
    let mut stalled = unended(stream::iter([message[..10].to_vec()]), &patient);
    assert_eq!(stalled.next().await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(begin.elapsed().as_secs(), 30);
    let begin = Instant::now();
    let ended = slow(&room.clone().within(Duration::from_secs(30))).next().await.unwrap().unwrap_err();
    assert_eq!(ended.code(), Code::DeadlineExceeded);
    assert!(begin.elapsed() < Duration::from_secs(35), "{:?}", begin.elapsed());
    assert_eq!(room.memory.free(), 1 << 20);
}

/// Takes every thread that unpacks, until what is returned is dropped.
async fn taken(room: &FrameRoom) -> Vec<mpsc::Sender<()>> {
    let seats = std::thread::available_parallelism().map_or(1, usize::from);
    let (held, waits): (Vec<_>, Vec<_>) = (0..seats).map(|_| mpsc::channel::<()>()).unzip();
    for wait in waits {
        let unpackers = room.unpackers.clone();
        tokio::spawn(async move { unpackers.long(move || wait.recv().is_ok()).await });
    }
    // Each of them stands in line now.
    for _ in 0..=seats {
        tokio::task::yield_now().await;
    }
    held
}

#[tokio::test]
async fn what_becomes_long_is_unpacked_and_decoded_in_turn_and_holds_up_nobody() {
    const LONG: usize = 1 << 20;
    let room = room();
    let lengths =
        |bytes: Vec<u8>| Frames::gzipped(Body::from(bytes), LONG, &room).decoded(|message| Ok(message.len()));
    let held = taken(&room).await;
    let mut long = lengths([gzipped(&[7; LONG]), gzipped(&[7; 3])].concat());
    for _ in 0..3 {
        assert!(poll!(pin!(long.next())).is_pending(), "it can be given up and asked again");
    }
    for short in [gzipped(&[7; 1000]), framed(&[vec![7; 1000]])] {
        let length = short.len();
        let mut short = lengths(short);
        let opened = short.next().now_or_never();
        assert!(matches!(opened, Some(Some(Ok(_)))), "one of {length} bytes does not wait");
    }
    let mut as_it_came = Frames::new(Body::from(framed(&[vec![7; LONG]])), LONG, &room);
    let opened = as_it_came.next().now_or_never();
    assert!(matches!(opened, Some(Some(Ok(_)))), "nothing is made of it");
    let mut plain = lengths(framed(&[vec![7; LONG]]));
    assert!(
        poll!(pin!(plain.next())).is_pending(),
        "there is as much to decode as if it had been compressed"
    );
    // A megabyte that becomes nothing: blocks in which nothing is stored, up to the last one.
    let (head, block): ([u8; 10], [u8; 5]) = ([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff], [0, 0, 0, 0xff, 0xff]);
    let hollow = [&head[..], &block.repeat(LONG / 5 - 10), &[1, 0, 0, 0xff, 0xff], &[0; 8]].concat();
    let framed = [&[1][..], &u32::try_from(hollow.len()).unwrap().to_be_bytes(), &hollow].concat();
    let mut hollow = lengths(framed);
    assert!(poll!(pin!(hollow.next())).is_pending());
    drop(held);
    assert_eq!(hollow.next().await.unwrap().unwrap(), 0, "it passes nobody who is not looked after");
    assert_eq!(plain.next().await.unwrap().unwrap(), LONG);
    assert_eq!(long.next().await.unwrap().unwrap(), LONG);
    assert_eq!(long.next().await.unwrap().unwrap(), 3);
    assert!(long.next().await.is_none());
    let mut bomb = lengths(gzipped(&vec![7; LONG + 1]));
    assert_eq!(bomb.next().await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn who_sends_much_at_once_ends_his_own_and_nobody_elses() {
    const HALF: usize = 45;
    let room = FrameRoom::new(10 * HALF);
    let half = |owner: &str| {
        let message = framed(&[vec![7; 2 * HALF]]);
        let room = room.clone().of(RoomShare { owner: owner.to_owned(), bytes: 2 * HALF });
        unended(stream::iter([message[..HALF].to_vec()]), &room)
    };
    let mut honest = half("honest");
    assert!(poll!(pin!(honest.next())).is_pending());
    let (mut oldest, mut younger, mut last) = (half("greedy"), half("greedy"), half("greedy"));
    for of_greedy in [&mut oldest, &mut younger, &mut last] {
        assert!(poll!(pin!(of_greedy.next())).is_pending());
    }
    assert_eq!(oldest.next().await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
    for going_on in [&mut honest, &mut younger, &mut last] {
        assert!(poll!(pin!(going_on.next())).is_pending());
    }
    assert_eq!(room.memory.free(), 7 * HALF);
}

#[tokio::test]
async fn who_is_known_once_his_stream_has_begun_has_half_of_the_room() {
    const PART: usize = 45;
    let room = FrameRoom::new(4 * PART);
    let part = |owner: &str| {
        let message = framed(&[vec![7; 2 * PART]]);
        let mut frames = unended(stream::iter([message[..PART].to_vec()]), &room);
        frames.belong_to(owner.to_owned());
        frames
    };
    let mut honest = part("honest");
    assert!(poll!(pin!(honest.next())).is_pending());
    let mut stolen = [part("stolen"), part("stolen"), part("stolen"), part("stolen")];
    for coming in &mut stolen {
        assert!(poll!(pin!(coming.next())).is_pending());
    }
    assert_eq!(room.memory.free(), PART, "nobody else made way");
    assert!(poll!(pin!(honest.next())).is_pending());
    let [first, second, ..] = &mut stolen;
    for oldest in [first, second] {
        assert_eq!(oldest.next().await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
    }
}
