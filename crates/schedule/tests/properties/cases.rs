//! Schedules to be checked, independent of what is checked.

use schedule::{Algorithm, Schedule};

pub fn build(algorithm: Algorithm, racks: &[u32], root: u32) -> Schedule {
    Schedule::with_racks(algorithm, racks, root).expect("valid arguments")
}

/// The rack of each rank, for a few ways to put `members` into racks.
pub fn layouts(members: u32) -> Vec<Vec<u32>> {
    let by = |rack_of: &dyn Fn(u32) -> u32| (0..members).map(rack_of).collect::<Vec<u32>>();
    let mut layouts = vec![
        by(&|_| 7),
        by(&|rank| rank),
        by(&|rank| rank / 4),
        by(&|rank| rank % 3),
        by(&|rank| u32::MAX - rank / 5),
        // Racks of 1, 2, 4, 8, ... members, and one large rack among small ones.
        by(&|rank| (rank + 1).ilog2()),
        by(&|rank| if rank % 2 == 0 { 0 } else { rank % 14 }),
    ];
    layouts.dedup();
    layouts
}

/// A few roots: the first, the last and a middle rank.
pub fn roots(members: u32) -> Vec<u32> {
    let mut roots = vec![0, members / 3, members - 1];
    roots.dedup();
    roots
}

/// Schedules for `members` members: one root per layout for the rack algorithms; for the others a few roots in
/// small groups and a single one in larger ones, since it only shifts the ranks.
pub fn schedules(algorithm: Algorithm, members: u32) -> Vec<Schedule> {
    // The root's position changes from layout to layout and from size to size.
    let roots = roots(members).into_iter().cycle().skip(members as usize);
    let layouts = match algorithm {
        _ if algorithm.needs_racks() => layouts(members),
        _ => vec![vec![0; members as usize]; if members <= 20 { 3 } else { 1 }],
    };
    layouts.iter().zip(roots).map(|(racks, root)| build(algorithm, racks, root)).collect()
}

/// Every list of up to `racks` sizes from `choices`.
pub fn lists(racks: usize, choices: &[u32]) -> Vec<Vec<u32>> {
    let mut lists: Vec<Vec<u32>> = vec![vec![]];
    for _ in 0..racks {
        let longer = lists.iter().flat_map(|list| {
            choices.iter().map(move |&size| list.iter().copied().chain([size]).collect())
        });
        lists.extend(longer.collect::<Vec<_>>());
        lists.sort();
        lists.dedup();
    }
    lists.retain(|list| !list.is_empty());
    lists
}

/// The rack of each rank in racks of these sizes, one after another.
pub fn racks_of(sizes: &[u32]) -> Vec<u32> {
    (0..).zip(sizes).flat_map(|(rack, &size)| vec![rack; size as usize]).collect()
}
