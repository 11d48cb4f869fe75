//! The search: every state that can be reached, each once, by its hash. A broken property is a panic.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

/// A state of clients and servers, with the steps out of it.
pub(crate) trait Model: Clone + Debug + Hash {
    /// The bounds, which do not change on the way.
    type Scenario: Debug;
    type Step: Copy + Debug;

    fn new(scenario: &Self::Scenario) -> Self;

    /// Lists all steps that may happen next.
    fn steps(&self, scenario: &Self::Scenario) -> Vec<Self::Step>;

    /// Returns whether the step happens by itself, sooner or later.
    fn must_happen(step: Self::Step) -> bool;

    fn take(&mut self, step: Self::Step, scenario: &Self::Scenario);

    /// Checks a state in which nothing happens by itself.
    fn check_quiet(&self, scenario: &Self::Scenario);
}

/// The hash is the key already.
#[derive(Default)]
struct IsHash(u64);

impl Hasher for IsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

type ByHash<T> = HashMap<u64, T, BuildHasherDefault<IsHash>>;

/// Mixes 64 bits at a time: most of the time goes into hashing.
#[derive(Default)]
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut value = [0; 8];
            value[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(value));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

fn hash_of<M: Model>(state: &M) -> u64 {
    let mut hasher = Mixer::default();
    state.hash(&mut hasher);
    hasher.finish()
}

/// A broken property, and the steps that lead there.
#[derive(Debug)]
struct Found<S> {
    violation: String,
    steps: Vec<S>,
}

/// Runs a part of a model, and returns the property that it has found broken.
fn checked<T>(part: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(part)).map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned(),
    })
}

fn steps_of<M: Model>(state: &M, scenario: &M::Scenario) -> Result<Vec<M::Step>, String> {
    checked(|| {
        let steps = state.steps(scenario);
        if !steps.iter().any(|step| M::must_happen(*step)) {
            state.check_quiet(scenario);
        }
        steps
    })
}

fn after<M: Model>(state: &M, step: M::Step, scenario: &M::Scenario) -> Result<M, String> {
    checked(|| {
        let mut next = state.clone();
        next.take(step, scenario);
        next
    })
}

struct Visit<M: Model> {
    state: M,
    hash: u64,
    steps: Vec<M::Step>,
    next: usize,
}

/// Searches depth first, and counts the states.
///
/// A state that repeats on its own path is an endless loop. Faults and releases are used up, so a loop has only steps
/// that happen by themselves.
fn search<M: Model>(scenario: &M::Scenario) -> Result<usize, Found<M::Step>> {
    let mut seen: ByHash<bool> = HashMap::default();
    let mut path: Vec<Visit<M>> = Vec::new();
    let found = |path: &[Visit<M>], violation| {
        let taken = path.iter().filter_map(|visit| visit.steps.get(visit.next.wrapping_sub(1)).copied());
        Found { violation, steps: taken.collect() }
    };
    let visit = |state: M, hash, path: &[Visit<M>]| {
        let steps = steps_of(&state, scenario).map_err(|violation| found(path, violation))?;
        Ok(Visit { state, hash, steps, next: 0 })
    };
    let first = checked(|| M::new(scenario)).map_err(|violation| found(&path, violation))?;
    let hash = hash_of(&first);
    seen.insert(hash, true);
    let first = visit(first, hash, &path)?;
    path.push(first);
    while let Some(last) = path.last_mut() {
        let Some(step) = last.steps.get(last.next).copied() else {
            seen.insert(last.hash, false);
            path.pop();
            continue;
        };
        last.next += 1;
        let after = after(&last.state, step, scenario).map_err(|violation| found(&path, violation))?;
        let hash = hash_of(&after);
        match seen.entry(hash) {
            Entry::Occupied(entry) if *entry.get() => {
                return Err(found(&path, "this goes on for ever".into()));
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(entry) => {
                entry.insert(true);
                let next = visit(after, hash, &path)?;
                path.push(next);
            }
        }
    }
    Ok(seen.len())
}

/// Searches breadth first, for the shortest path to a broken property.
fn shortest<M: Model>(scenario: &M::Scenario) -> Option<Found<M::Step>> {
    let mut seen: HashSet<u64, BuildHasherDefault<IsHash>> = HashSet::default();
    let mut came: Vec<(usize, Option<M::Step>)> = vec![(0, None)];
    let found = |violation, came: &[(usize, Option<M::Step>)], mut at: usize, last: Option<M::Step>| {
        let mut steps: Vec<_> = last.into_iter().collect();
        while let (before, Some(step)) = came[at] {
            steps.push(step);
            at = before;
        }
        steps.reverse();
        Some(Found { violation, steps })
    };
    let mut queue = VecDeque::from([(checked(|| M::new(scenario)).ok()?, 0)]);
    while let Some((state, at)) = queue.pop_front() {
        let steps = match steps_of(&state, scenario) {
            Ok(steps) => steps,
            Err(violation) => return found(violation, &came, at, None),
        };
        for step in steps {
            let after = match after(&state, step, scenario) {
                Ok(after) => after,
                Err(violation) => return found(violation, &came, at, Some(step)),
            };
            if seen.insert(hash_of(&after)) {
                came.push((at, Some(step)));
                queue.push_back((after, came.len() - 1));
            }
        }
    }
    None
}

thread_local! {
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// Prints what happens in a step, while the way to a broken property is repeated.
pub(crate) fn tell(what: impl FnOnce() -> String) {
    if TELLS.get() {
        println!("      {}", what());
    }
}

/// Repeats the steps to a broken property, and prints them.
fn print<M: Model>(scenario: &M::Scenario, steps: &[M::Step]) {
    TELLS.set(true);
    let mut state = checked(|| M::new(scenario));
    for step in steps {
        println!("{step:?}");
        state = state.and_then(|state| after(&state, *step, scenario));
    }
    TELLS.set(false);
    println!("{state:#?}");
}

/// Returns whether the environment asks for the larger bounds.
pub(crate) fn is_long() -> bool {
    std::env::var("CURATOR_MODEL").is_ok_and(|bounds| bounds == "long")
}

/// Searches scenarios to their ends, and expects that every property holds.
pub(crate) fn nothing_is_found<M: Model>(scenarios: impl IntoIterator<Item = M::Scenario>) {
    let (began, mut all) = (Instant::now(), 0);
    for scenario in scenarios {
        match search::<M>(&scenario) {
            Ok(states) => {
                println!("{states} states: {scenario:?}");
                all += states;
            }
            Err(found) => {
                let found = shortest::<M>(&scenario).unwrap_or(found);
                print::<M>(&scenario, &found.steps);
                panic!("{} in {} steps: {scenario:?}", found.violation, found.steps.len());
            }
        }
    }
    println!("{all} states in {:?}", began.elapsed());
}

/// Searches a scenario with a deliberate break, and expects a violation with this text.
pub(crate) fn is_found<M: Model>(scenario: &M::Scenario, why: &str) {
    let Err(Found { violation, steps }) = search::<M>(scenario) else { panic!("nothing is found: {scenario:?}") };
    println!("{violation} in {} steps: {scenario:?}", steps.len());
    assert!(violation.contains(why), "{violation}: {scenario:?}");
}

/// Takes steps in random orders, to the end of each.
pub(crate) fn play<M: Model>(scenario: &M::Scenario, seeds: Range<u64>) {
    const LONGEST: usize = 20_000;
    for seed in seeds {
        let (mut state, mut random, mut taken) = (M::new(scenario), SmallRng::seed_from_u64(seed), Vec::new());
        let played = checked(|| {
            loop {
                let steps = state.steps(scenario);
                let is_quiet = !steps.iter().any(|step| M::must_happen(*step));
                if is_quiet && (steps.is_empty() || random.random_bool(0.5)) {
                    break state.check_quiet(scenario);
                }
                let step = steps[random.random_range(0..steps.len())];
                if !M::must_happen(step) && random.random_bool(0.8) {
                    continue;
                }
                taken.push(step);
                assert!(taken.len() < LONGEST, "it does not end");
                state.take(step, scenario);
            }
        });
        if let Err(violation) = played {
            print::<M>(scenario, &taken);
            panic!("{violation} with seed {seed}: {scenario:?}");
        }
    }
}
