//! The allocation of items to members: a pure function of their names.
//!
//! Rendezvous hashing with a bound: each pair of an item and a member has a weight, and the heaviest pairs are joined first.
//! A pair is skipped if its item is allocated, or if its member has its share. So the loads differ by at most one, and
//! no item and member would both do better with each other. All members compute the same result from the same names.
//!
//! The weights are a contract between processes of different versions: `weights_are_fixed` keeps them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use sha1_smol::Sha1;

/// Allocates each item to one member. The order of the names does not count, and a repeated name counts once. The result
/// is empty without members.
pub(super) fn allocate<'i, 'm>(
    members: impl IntoIterator<Item = &'m str>,
    items: impl IntoIterator<Item = &'i str>,
) -> BTreeMap<&'i str, &'m str> {
    let members: Vec<&str> = members.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let items: Vec<&str> = items.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let hashes: Vec<u64> = members.iter().map(|member| hash(member)).collect();
    let mut pairs: Vec<(Reverse<u64>, usize, usize)> = Vec::with_capacity(items.len() * members.len());
    for (item, name) in items.iter().enumerate() {
        let hash = hash(name);
        pairs.extend(hashes.iter().enumerate().map(|(member, &of)| (Reverse(weight(hash, of)), item, member)));
    }
    // Equal weights are ordered by the names.
    pairs.sort_unstable();
    let mut shares = Shares::new(items.len(), members.len());
    let mut allocation = BTreeMap::new();
    for (_, item, member) in pairs {
        if !allocation.contains_key(items[item]) && shares.take(member) {
            allocation.insert(items[item], members[member]);
        }
    }
    allocation
}

/// The number of items that each member may still get.
struct Shares {
    loads: Vec<usize>,
    /// The share of each member.
    floor: usize,
    /// The number of members that get one item more.
    extra: usize,
}

impl Shares {
    fn new(items: usize, members: usize) -> Self {
        let (floor, extra) = (items.checked_div(members).unwrap_or(0), items.checked_rem(members).unwrap_or(0));
        Self { loads: vec![0; members], floor, extra }
    }

    /// Takes one item of a member's share, if one is left.
    fn take(&mut self, member: usize) -> bool {
        let load = self.loads[member];
        if load > self.floor || (load == self.floor && self.extra == 0) {
            return false;
        }
        self.extra -= usize::from(load == self.floor);
        self.loads[member] += 1;
        true
    }
}

fn weight(item: u64, member: u64) -> u64 {
    mix(mix(item) ^ member)
}

/// Returns the first eight bytes of the name's SHA-1, as a big-endian number.
fn hash(name: &str) -> u64 {
    let digest = Sha1::from(name).digest().bytes();
    digest[..8].iter().fold(0, |hash, &byte| hash << 8 | u64::from(byte))
}

/// The step and the finalizer of SplitMix64.
const fn mix(seed: u64) -> u64 {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    /// Numbered names, other ones for each seed.
    fn names(kind: &str, seed: usize, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{kind}-{seed}-{number}")).collect()
    }

    fn allocated<'a>(members: &'a [String], items: &'a [String]) -> BTreeMap<&'a str, &'a str> {
        allocate(members.iter().map(String::as_str), items.iter().map(String::as_str))
    }

    /// Returns the number of items that both allocations have, with different members.
    fn moves(one: &BTreeMap<&str, &str>, other: &BTreeMap<&str, &str>) -> usize {
        one.iter().filter(|(item, member)| other.get(*item).is_some_and(|now| now != *member)).count()
    }

    #[test]
    fn weights_are_fixed() {
        assert_eq!((hash(""), hash("ann")), (0xda39_a3ee_5e6b_4b0d, 0x744c_b9a9_fb3d_5583));
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(weight(hash("item-0"), hash("ann")), 0x50ad_a49a_34ce_8a50);
    }

    /// A program in another language has computed these.
    #[test]
    fn allocations_are_fixed() {
        let items: Vec<String> = (0..10).map(|number| format!("item-{number}")).collect();
        let owners = |members: &[&str]| {
            let of = allocate(members.iter().copied(), items.iter().map(String::as_str));
            of.into_values().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(owners(&["ann", "bob", "cat"]), "cat bob cat bob ann bob cat ann ann ann");
        assert_eq!(owners(&["bob", "ann", "bob"]), "ann bob bob bob ann bob bob ann ann ann");
        let beyond_ascii = allocate(["ä", "münchen", "a"], ["1", "2", "3", "ö", "€"]);
        let expected = [("1", "ä"), ("2", "münchen"), ("3", "ä"), ("ö", "münchen"), ("€", "a")];
        assert_eq!(beyond_ascii, BTreeMap::from(expected));
    }

    #[test]
    fn no_members_get_nothing_and_one_gets_all() {
        assert_eq!(allocate([], ["a", "b"]), BTreeMap::new());
        assert_eq!(allocate(["m"], []), BTreeMap::new());
        assert_eq!(allocate(["m"], ["a", "b"]), BTreeMap::from([("a", "m"), ("b", "m")]));
    }

    /// Returns the moves of ten joins: their sum, and the largest number.
    fn moves_of_joins(items: usize, members: usize) -> (usize, usize) {
        let join = |seed| {
            let (items, members) = (names("item", seed, items), names("member", seed, members + 1));
            moves(&allocated(&members[..members.len() - 1], &items), &allocated(&members, &items))
        };
        let all: Vec<usize> = (0..10).map(join).collect();
        (all.iter().sum(), all.into_iter().max().unwrap_or_default())
    }

    /// The figures of the documentation. The least number of moves is the share of the member that joins.
    #[test]
    fn a_join_moves_few_items() {
        for (items, members, least, mean, most) in
            [(10, 1, 5, 5, 5), (10, 3, 2, 4, 5), (100, 10, 9, 15, 20), (256, 64, 3, 10, 14), (1000, 10, 90, 115, 120)]
        {
            let (sum, largest) = moves_of_joins(items, members);
            println!("{items} items, member {}: {least} <= {} <= {largest}", members + 1, sum as f64 / 10.0);
            assert!(sum >= least * 10 && sum <= mean * 10, "{items} items: {sum} moves in ten joins");
            assert!(largest <= most, "{items} items: {largest} moves in one join");
        }
    }

    proptest! {
        #[test]
        fn each_item_has_one_member_and_loads_differ_by_at_most_one(
            members in btree_set("[a-z]{1,8}", 1..20),
            items in btree_set("\\PC{1,8}", 1..80),
        ) {
            let (members, items): (Vec<_>, Vec<_>) = (members.into_iter().collect(), items.into_iter().collect());
            let allocation = allocated(&members, &items);
            prop_assert!(allocation.keys().copied().eq(items.iter().map(String::as_str)));
            let load = |member: &String| allocation.values().filter(|of| **of == member).count();
            let (floor, ceiling) = (items.len() / members.len(), items.len().div_ceil(members.len()));
            prop_assert!(members.iter().map(load).all(|load| (floor..=ceiling).contains(&load)));
        }

        #[test]
        fn the_order_of_names_does_not_count(
            members in btree_set("[a-z]{1,8}", 1..20),
            items in btree_set("[a-z]{1,8}", 1..40),
            turn in 0_usize..20,
        ) {
            let (mut members, mut items): (Vec<_>, Vec<_>) = (members.into_iter().collect(), items.into_iter().collect());
            let sorted = (members.clone(), items.clone());
            let (by_members, by_items) = (turn % members.len(), turn % items.len());
            members.rotate_left(by_members);
            items.rotate_left(by_items);
            items.push(items[0].clone());
            prop_assert_eq!(allocated(&members, &items), allocated(&sorted.0, &sorted.1));
        }

        /// A leave is a join, backwards.
        #[test]
        fn a_join_moves_a_few_shares_at_most(
            seed in 0_usize..100_000,
            members in 1_usize..12,
            items in 1_usize..120,
        ) {
            let (members, items) = (names("member", seed, members + 1), names("item", seed, items));
            let (before, after) = (allocated(&members[..members.len() - 1], &items), allocated(&members, &items));
            let moves = moves(&before, &after);
            prop_assert!(moves <= 3 * items.len().div_ceil(members.len()) + members.len(), "{} of {} moved", moves, items.len());
        }

        /// An item that is added or removed moves only a few others.
        #[test]
        fn a_new_item_moves_few_others(seed in 0_usize..100_000, members in 1_usize..12, items in 2_usize..120) {
            let (members, items) = (names("member", seed, members), names("item", seed, items));
            let (before, after) = (allocated(&members, &items[1..]), allocated(&members, &items));
            prop_assert!(moves(&before, &after) <= 2 * members.len(), "{} moved", moves(&before, &after));
        }
    }
}
