//! Which rules match which names, and what do they come to?

use super::*;

fn rule(pattern: &str, change: impl FnOnce(&mut DestinationRule)) -> DestinationRule {
    let mut rule = DestinationRule { pattern: pattern.to_owned(), ..DestinationRule::default() };
    change(&mut rule);
    rule
}

#[test]
fn flags_add_up_and_values_are_overridden() {
    let destinations = Destinations::new(
        vec![
            rule("a.b", |r| r.expiration_us = Some(7)),
            rule("a.>", |r| {
                r.expiration_us = Some(9);
                r.exclusive = Some(true);
            }),
            rule(">", |r| {
                r.consumers_max = Some(3);
                r.exclusive = Some(false);
            }),
        ],
        true,
    );
    let found = destinations.lookup("a.b", None).properties;
    assert_eq!((found.expiration_us, found.exclusive, found.consumers_max), (Some(7), true, Some(3)));
    let found = destinations.lookup("a.c", None).properties;
    assert_eq!(found.expiration_us, Some(9));
    let found = destinations.lookup("b", None).properties;
    assert_eq!((found.expiration_us, found.exclusive, found.consumers_max), (None, false, Some(3)));
}

/// Of wildcards that are as specific as each other, wherever they stand in the file.
#[test]
fn of_equal_wildcards_the_one_later_in_the_alphabet_holds() {
    let by = |pattern: &str| rule(pattern, |r| r.dead_letter = Some(pattern.replace('*', "x").into()));
    for turned in [false, true] {
        let mut rules = vec![by("a.*.c"), by("*.b.c"), by("a.b.*")];
        if turned {
            rules.reverse();
        }
        let found = Destinations::new(rules, true).lookup("a.b.c", None);
        assert_eq!(found.dead_letter.as_deref(), Some("a.b.x"));
    }
}

#[test]
fn of_several_parents_the_largest_prefetch_holds() {
    let destinations = Destinations::new(
        vec![
            rule("a.*", |r| r.prefetch = Some(PrefetchRule::Limit(10))),
            rule("*.b", |r| r.prefetch = Some(PrefetchRule::Limit(20))),
            rule("a.b", |r| r.prefetch = Some(PrefetchRule::Inherit)),
            rule("a.c", |r| r.prefetch = Some(PrefetchRule::None)),
            rule("z", |r| r.prefetch = Some(PrefetchRule::Inherit)),
        ],
        true,
    );
    assert_eq!(destinations.lookup("a.b", None).properties.prefetch, Prefetch::Limit(20));
    assert_eq!(destinations.lookup("a.c", None).properties.prefetch, Prefetch::None);
    assert_eq!(destinations.lookup("a.d", None).properties.prefetch, Prefetch::Limit(10));
    assert_eq!(destinations.lookup("z", None).properties.prefetch, Prefetch::Limit(PREFETCH_INHERITED));
    assert_eq!(destinations.lookup("y", None).properties.prefetch, Prefetch::Absent);
}

#[test]
fn automatic_creation_is_a_property_too() {
    let rules = vec![rule("closed.>", |r| r.auto_create = Some(false))];
    let destinations = Destinations::new(rules, true);
    assert!(destinations.lookup("open", None).auto_create);
    assert!(!destinations.lookup("closed.one", None).auto_create);
}
