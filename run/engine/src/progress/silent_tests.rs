//! Tests of the list of members that whoever polls looks at.

use super::silent::{Entry, Silent};

fn members(silent: &Silent<u32>) -> Vec<u32> {
    let at = |place| first_from(silent, place).map(|(_, member)| member);
    (0..).map_while(at).collect()
}

/// The first one from that place on, of which none is quiet.
fn first_from(silent: &Silent<u32>, place: usize) -> Option<(Entry, u32)> {
    let found = silent.next(place, |_| false, |&one| one).ok()?;
    Some((found.entry, found.member))
}

/// What a thread that is about to sleep takes out.
fn asleep(silent: &Silent<u32>) -> Vec<u32> {
    silent.begin_sleep();
    let mut taken: Vec<_> = std::iter::from_fn(|| silent.take()).collect();
    taken.sort_unstable();
    taken
}

#[test]
fn who_is_about_to_sleep_gets_all_of_them_and_nobody_joins_meanwhile() {
    let silent = Silent::new();
    assert!(silent.add(1) && silent.add(2));
    assert_eq!(members(&silent), [1, 2]);
    assert_eq!(asleep(&silent), [1, 2]);
    assert_eq!(asleep(&silent), [], "another one finds none");
    silent.end_sleep();
    assert!(!silent.add(3), "one still sleeps");
    silent.end_sleep();
    assert!(silent.add(3));
    silent.remove(first_from(&silent, 0).unwrap().0);
    assert_eq!(members(&silent), []);
}

#[test]
fn who_removes_an_entry_leaves_the_next_one_of_its_member() {
    let silent = Silent::new();
    assert!(silent.add(1));
    let (seen, _) = first_from(&silent, 0).unwrap();
    assert_eq!(asleep(&silent), [1]);
    silent.end_sleep();
    assert!(silent.add(1));
    silent.remove(seen);
    assert!(!silent.looked(false, seen));
    assert_eq!(members(&silent), [1], "nobody would look at it otherwise");
}

#[test]
fn the_list_is_short() {
    let silent = Silent::new();
    let joined = (0..1000).take_while(|&one| silent.add(one));
    assert_eq!(joined.count(), 256);
    assert_eq!(asleep(&silent).len(), 256);
}

#[test]
fn a_member_with_nothing_for_long_is_taken_out_once() {
    let silent = Silent::new();
    assert!(silent.add(1) && silent.add(2));
    let (first, _) = first_from(&silent, 0).unwrap();
    let look = |found| silent.looked(found, first);
    assert!((0..65_536).all(|_| !look(false)));
    assert!(!look(true), "it begins anew");
    assert!((0..65_536).all(|_| !look(false)));
    assert!(look(false) && !look(false));
    assert_eq!(members(&silent), [2]);
}

#[test]
fn who_is_quiet_is_passed_by_and_looked_at_once_it_is_not_or_was_quiet_for_long() {
    let silent = Silent::new();
    assert_eq!(
        silent.next(0, |_| true, |&one| one).err(),
        Some(false),
        "there is none"
    );
    assert!((0..4).all(|one| silent.add(one)));
    let found = silent
        .next(0, |&one| one != 2, |&one| one)
        .expect("2 is not quiet");
    assert_eq!((found.member, found.next), (2, Some(3)));
    assert!(!silent.looked(true, found.entry));
    assert_eq!(
        silent.next(3, |_| true, |&one| one).err(),
        Some(true),
        "all are quiet"
    );
    assert_eq!(
        silent
            .next(3, |_| false, |&one| one)
            .expect("the last")
            .next,
        None
    );
    assert!((1..65_536).all(|_| silent.next(0, |_| true, |&one| one).is_err()));
    let found = silent
        .next(0, |_| true, |&one| one)
        .expect("0 was quiet for long");
    assert_eq!((found.member, found.next), (0, Some(1)));
    assert!(silent.looked(false, found.entry));
    assert!(!members(&silent).contains(&0));
}
