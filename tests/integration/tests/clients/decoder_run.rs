//! No byte of a server makes the client panic, abort, hang, or allocate more than it may.
//!
//! A child process with limited memory feeds the client's state machine with recorded replies that were changed at
//! random, and with random bytes. `DECODER_RUN=10000000` sets how many inputs there are, `DECODER_SEED` repeats a run.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use curator_framework::spi::decoder::{Decoder, Stage};
use curator_framework::spi::{Operation, Request};
use curator_framework::{Acl, CreateMode};
use curator_golden::{ENSEMBLE, Exchange, Frame, STANDALONE};
use curator_test::wire::{OpCode, Reader, RequestHeader};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Resource, Rlimit, setrlimit};

/// What the child process may have of memory, code and stacks included.
const ADDRESS_SPACE: u64 = 512 << 20;
const INPUTS: u64 = 200_000;
/// A child that feeds fewer inputs in a second hangs.
const SLOWEST: u64 = 5_000;
/// How often the child says how far it is.
const PROGRESS: u64 = 1 << 20;

/// A recorded reply, and the stage in which it is one.
struct Sample {
    stage: Stage,
    reply: Vec<u8>,
}

fn request_of(op: OpCode) -> Option<Request> {
    let path = || Arc::<str>::from("/golden");
    let operations = ["a", "b", "c"].map(|name| Operation::Create {
        path: format!("/golden/{name}"),
        data: Vec::new(),
        acl: Acl::open_unsafe(),
        mode: CreateMode::Persistent,
    });
    Some(match op {
        OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
            Request::Create { path: path(), data: Vec::new(), acl: Vec::new(), mode: CreateMode::Persistent }
        }
        OpCode::Delete => Request::Delete { path: path(), version: None },
        OpCode::Exists => Request::Exists { path: path(), watch: true },
        OpCode::GetData => Request::GetData { path: path(), watch: true },
        OpCode::SetData => Request::SetData { path: path(), data: Vec::new(), version: None },
        OpCode::GetChildren => Request::GetChildren { path: path(), watch: true },
        OpCode::GetAcl => Request::GetAcl { path: path() },
        OpCode::SetAcl => Request::SetAcl { path: path(), acl: Vec::new(), version: None },
        OpCode::GetEphemerals => Request::GetEphemerals { path: path() },
        OpCode::Sync => Request::Sync { path: path() },
        OpCode::Multi => Request::Transaction { operations: operations.to_vec() },
        OpCode::Reconfig => {
            Request::Reconfig { joining: Vec::new(), leaving: Vec::new(), members: Vec::new(), version: None }
        }
        _ => return None,
    })
}

fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    for Exchange { name, frames, .. } in [STANDALONE, ENSEMBLE].into_iter().flat_map(Exchange::all) {
        let mut is_first = name.starts_with("connect");
        let mut stage = Stage::Connecting;
        for frame in frames {
            match frame {
                Frame::FromClient(_) if is_first => {}
                Frame::FromClient(request) => {
                    let op = RequestHeader::decode(&mut Reader::new(&request)).unwrap().op;
                    stage = match op {
                        OpCode::Sasl => Stage::LoggingIn,
                        OpCode::Auth | OpCode::SetWatches | OpCode::SetWatches2 => Stage::Restoring,
                        op => Stage::Ready(request_of(op).into_iter().collect()),
                    };
                }
                Frame::FromServer(mut reply) => {
                    let numbered = !is_first && i32::from_be_bytes(*reply.first_chunk().unwrap()) > 0;
                    if numbered {
                        reply[..4].copy_from_slice(&1_i32.to_be_bytes());
                    }
                    samples.push(Sample { stage: stage.clone(), reply });
                    is_first = false;
                }
            }
        }
    }
    samples
}

/// Numbers at which decoders break.
const NUMBERS: [i32; 16] =
    [0, 1, -1, -2, -4, -6, -8, 2, 127, 128, 255, 0xf_ffff, 0x10_0000, i32::MAX, i32::MIN, i32::MAX - 1];

fn changed(mut bytes: Vec<u8>, random: &mut SmallRng) -> Vec<u8> {
    for _ in 0..random.random_range(0..4) {
        let length = bytes.len();
        match random.random_range(0..6) {
            0 if length > 0 => bytes[random.random_range(0..length)] ^= 1 << random.random_range(0..8),
            1 if length >= 4 => {
                let at = random.random_range(0..=length - 4);
                let number = NUMBERS[random.random_range(0..NUMBERS.len())];
                bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            2 => bytes.truncate(random.random_range(0..=length)),
            3 => bytes.extend((0..random.random_range(1..40)).map(|_| random.random::<u8>())),
            4 if length > 0 => {
                let (from, to) = (random.random_range(0..length), random.random_range(0..length));
                let part = bytes[from.min(to)..from.max(to)].to_vec();
                let at = random.random_range(0..=length);
                bytes.splice(at..at, part);
            }
            5 if length > 0 => bytes[random.random_range(0..length)] = random.random(),
            _ => {}
        }
    }
    bytes
}

fn frame(bytes: &[u8], random: &mut SmallRng) -> Vec<u8> {
    let length = match random.random_range(0..50) {
        0 => NUMBERS[random.random_range(0..NUMBERS.len())],
        _ => i32::try_from(bytes.len()).unwrap(),
    };
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Feeds one input. Returns whether the client has taken all of it.
fn feed(samples: &[Sample], random: &mut SmallRng) -> bool {
    let Sample { stage, reply } = &samples[random.random_range(0..samples.len())];
    let mut decoder = Decoder::new(stage.clone());
    let mut input = Vec::new();
    for number in 0..random.random_range(1..4) {
        let bytes = match random.random_range(0..10) {
            0 => (0..random.random_range(0..100)).map(|_| random.random::<u8>()).collect(),
            1..4 => changed(samples[random.random_range(0..samples.len())].reply.clone(), random),
            _ if number == 0 => changed(reply.clone(), random),
            _ => reply.clone(),
        };
        input.extend(frame(&bytes, random));
    }
    let taken = decoder.feed(&input);
    // What is left of the session continues over the next connection.
    decoder.reopen();
    let _again = decoder.feed(&input);
    match taken {
        Ok(taken) => {
            assert!(taken <= input.len());
            taken == input.len()
        }
        Err(_violation) => false,
    }
}

#[test]
fn no_bytes_of_a_server_harm_the_client() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let inputs = number("DECODER_RUN").unwrap_or(INPUTS);
    let seed = number("DECODER_SEED").unwrap_or_else(rand::random);
    println!("DECODER_SEED={seed}: {inputs} inputs");
    let began = Instant::now();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "decoder_run::child_process_feeds_the_decoder", "--nocapture"])
        .env("DECODER_CHILD", format!("{seed} {inputs}"))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let limit = Duration::from_secs(30 + inputs / SLOWEST);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > limit {
            child.kill().unwrap();
            panic!("the decoder hangs, seed {seed}");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    println!("{inputs} inputs in {:.1?}", began.elapsed());
    assert!(status.success(), "{status}, seed {seed}");
}

/// Does nothing unless the test above has started it.
#[test]
fn child_process_feeds_the_decoder() {
    let Ok(task) = std::env::var("DECODER_CHILD") else { return };
    let (seed, inputs) = task.split_once(' ').unwrap();
    let (seed, inputs): (u64, u64) = (seed.parse().unwrap(), inputs.parse().unwrap());
    let limit = Rlimit { current: Some(ADDRESS_SPACE), maximum: Some(ADDRESS_SPACE) };
    setrlimit(Resource::As, limit).unwrap();
    let samples = samples();
    let mut taken = 0;
    for number in 0..inputs {
        if number % PROGRESS == 0 {
            println!("input {number}");
        }
        let mut random = SmallRng::seed_from_u64(seed.wrapping_add(number));
        taken += u64::from(feed(&samples, &mut random));
    }
    println!("{taken} of {inputs} inputs were taken as a whole");
    // An input that is refused at its first byte tests nothing.
    assert!(taken > inputs / 20 && taken < inputs * 19 / 20, "{taken} of {inputs}");
}
