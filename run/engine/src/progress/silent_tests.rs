//! Tests of the list of members that whoever polls looks at.

use super::silent::Silent;

fn members(silent: &Silent<u32>) -> Vec<u32> {
    let at = |place| silent.at(place).map(|(_, member)| member);
    (0..).map_while(at).collect()
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
    silent.remove(silent.at(0).unwrap().0);
    assert_eq!(members(&silent), []);
}

#[test]
fn who_removes_an_entry_leaves_the_next_one_of_its_member() {
    let silent = Silent::new();
    assert!(silent.add(1));
    let (seen, _) = silent.at(0).unwrap();
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
    let (first, _) = silent.at(0).unwrap();
    let look = |found| silent.looked(found, first);
    assert!((0..4096).all(|_| !look(false)));
    assert!(!look(true), "it begins anew");
    assert!((0..4096).all(|_| !look(false)));
    assert!(look(false) && !look(false));
    assert_eq!(members(&silent), [2]);
}
