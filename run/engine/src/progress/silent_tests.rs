//! Tests of the list of members that whoever polls looks at.

use super::silent::Silent;

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
    assert!(silent.add(1, |&other| other == 1) && silent.add(2, |&other| other == 2));
    assert_eq!(
        (silent.at(0), silent.at(1), silent.at(2)),
        (Some(1), Some(2), None)
    );
    assert_eq!(asleep(&silent), [1, 2]);
    assert_eq!(asleep(&silent), [], "another one finds none");
    silent.end_sleep();
    assert!(!silent.add(3, |&other| other == 3), "one still sleeps");
    silent.end_sleep();
    assert!(silent.add(3, |&other| other == 3));
    silent.remove(|&other| other == 3);
    assert_eq!(silent.at(0), None);
}

#[test]
fn the_list_is_short() {
    let silent = Silent::new();
    let joined = (0..1000).take_while(|&one| silent.add(one, |&other| other == one));
    assert_eq!(joined.count(), 64);
    assert_eq!(asleep(&silent).len(), 64);
}

#[test]
fn a_member_with_nothing_for_long_is_taken_out_once() {
    let silent = Silent::new();
    assert!(silent.add(1, |&other| other == 1) && silent.add(2, |&other| other == 2));
    let look = |found| silent.looked(found, |&other| other == 1);
    assert!((0..4096).all(|_| !look(false)));
    assert!(!look(true), "it begins anew");
    assert!((0..4096).all(|_| !look(false)));
    assert!(look(false) && !look(false));
    assert_eq!((silent.at(0), silent.at(1)), (Some(2), None));
}
