//! The search: every state that can be reached, each once, by its hash.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hash as _, Hasher};

use crate::engine::model::properties::check_quiet;
use crate::engine::model::scenario::Scenario;
use crate::engine::model::state::{Step, Violation, World};

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

fn hash_of(world: &World) -> u64 {
    let mut hasher = Mixer::default();
    world.hash(&mut hasher);
    hasher.finish()
}

/// A broken property, and the steps that lead there.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) violation: Violation,
    pub(super) steps: Vec<Step>,
}

/// Lists the steps out of a world, and checks a world in which nothing happens by itself.
fn steps_of(world: &World, scenario: &Scenario) -> Result<Vec<Step>, Violation> {
    let steps = world.steps(scenario);
    if !steps.iter().any(|step| step.must_happen()) {
        check_quiet(world)?;
    }
    Ok(steps)
}

struct Visit {
    world: World,
    hash: u64,
    steps: Vec<Step>,
    next: usize,
}

/// Searches depth first, and counts the states.
///
/// A state that repeats on its own path is an endless loop. Faults and releases are used up, so a loop has only steps
/// that happen by themselves.
pub(super) fn search(scenario: &Scenario) -> Result<usize, Found> {
    let mut seen: ByHash<bool> = HashMap::default();
    let mut path: Vec<Visit> = Vec::new();
    let found = |path: &[Visit], violation| {
        let taken = path.iter().filter_map(|visit| visit.steps.get(visit.next.wrapping_sub(1)).copied());
        Found { violation, steps: taken.collect() }
    };
    let visit = |world: World, path: &[Visit]| {
        let hash = hash_of(&world);
        let steps = steps_of(&world, scenario).map_err(|violation| found(path, violation))?;
        Ok(Visit { world, hash, steps, next: 0 })
    };
    let first = World::new(scenario).map_err(|violation| found(&path, violation))?;
    let first = visit(first, &path)?;
    seen.insert(first.hash, true);
    path.push(first);
    while let Some(last) = path.last_mut() {
        let Some(step) = last.steps.get(last.next).copied() else {
            seen.insert(last.hash, false);
            path.pop();
            continue;
        };
        last.next += 1;
        let after = last.world.after(step, scenario);
        let after = after.map_err(|violation| found(&path, violation))?;
        match seen.entry(hash_of(&after)) {
            Entry::Occupied(entry) if *entry.get() => {
                return Err(found(&path, "this goes on for ever".into()));
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(entry) => {
                entry.insert(true);
                let next = visit(after, &path)?;
                path.push(next);
            }
        }
    }
    Ok(seen.len())
}

/// Searches breadth first, for the shortest path to a broken property.
pub(super) fn shortest(scenario: &Scenario) -> Option<Found> {
    let mut seen: HashSet<u64, BuildHasherDefault<IsHash>> = HashSet::default();
    let mut came: Vec<(usize, Option<Step>)> = vec![(0, None)];
    let mut queue = VecDeque::new();
    let steps_to = |came: &[(usize, Option<Step>)], mut at: usize, last: Option<Step>| {
        let mut steps: Vec<_> = last.into_iter().collect();
        while let (before, Some(step)) = came[at] {
            steps.push(step);
            at = before;
        }
        steps.reverse();
        steps
    };
    match World::new(scenario) {
        Ok(world) => queue.push_back((world, 0)),
        Err(violation) => return Some(Found { violation, steps: Vec::new() }),
    }
    while let Some((world, at)) = queue.pop_front() {
        let steps = match steps_of(&world, scenario) {
            Ok(steps) => steps,
            Err(violation) => return Some(Found { violation, steps: steps_to(&came, at, None) }),
        };
        for step in steps {
            let after = match world.after(step, scenario) {
                Ok(after) => after,
                Err(violation) => return Some(Found { violation, steps: steps_to(&came, at, Some(step)) }),
            };
            if seen.insert(hash_of(&after)) {
                came.push((at, Some(step)));
                queue.push_back((after, came.len() - 1));
            }
        }
    }
    None
}

/// Repeats the steps, and prints the inputs and the actions of the contenders.
pub(super) fn print(scenario: &Scenario, steps: &[Step]) {
    let scenario = Scenario { prints: true, ..scenario.clone() };
    let mut world = World::new(&scenario);
    for step in steps {
        println!("{step:?}");
        world = world.and_then(|world| world.after(*step, &scenario));
    }
    println!("{world:#?}");
}
