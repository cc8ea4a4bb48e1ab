//! Entries that were there before the broker was started.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod support;

use corelane_engine::*;
use support::*;

fn restored(place: Place, publication: Publication<Note>, counts: (u32, u32)) -> Restored<Note> {
    let Publication { message, expires_at, held_until, last_value, .. } = publication;
    Restored {
        place,
        outline: Outline::of(&message),
        stored: Stored::Here(message),
        expires_at,
        held_until,
        last_value,
        delivery_count: counts.0,
        acquired_count: counts.1,
        pending: false,
    }
}

#[test]
fn entries_come_back_to_their_places_with_their_counts() {
    let mut bench = Bench::plain();
    let places = [Place(7), Place(64), Place(100_000)];
    for (id, place) in (1..).zip(places) {
        let entry = restored(place, note(id), (id as u32, 2 * id as u32));
        assert!(bench.engine.restore(bench.now, bench.queue, entry).is_ok());
        bench.check();
    }
    let again = restored(Place(64), note(4), (0, 0));
    assert!(bench.engine.restore(bench.now, bench.queue, again).is_err(), "not behind the others");
    bench.engine.begin_at(bench.queue, 200_000);
    let later = bench.put(note(5));
    assert_eq!(later, Place(200_000));
    let view = bench.engine.explain_entry(bench.queue, places[2]).unwrap();
    assert_eq!((view.delivery_count, view.acquired_count), (3, 6));
    assert_eq!(bench.engine.message_at(bench.queue, places[1]).unwrap().here().unwrap().id, 2);
    let taker = bench.ready(0);
    assert_eq!(bench.ids_for(taker), [1, 2, 3, 5]);
}

#[test]
fn what_expired_meanwhile_is_gone_and_what_was_held_is_held() {
    let mut bench = Bench::plain();
    let now = bench.now;
    let expired = Publication { expires_at: Some(now - 1), ..note(1) };
    let held = Publication { held_until: Some(now + 50), ..note(2) };
    let was_held = Publication { held_until: Some(now - 1), ..note(3) };
    for (place, publication) in [(0, expired), (1, held), (2, was_held)] {
        bench.engine.restore(now, bench.queue, restored(Place(place), publication, (0, 0))).unwrap();
    }
    let taker = bench.ready(0);
    bench.engine.handle_timeout(now);
    bench.check();
    assert_eq!(bench.engine.explain_entry(bench.queue, Place(1)).unwrap().held_until, Some(now + 50));
    assert_eq!(bench.ids_for(taker), [3]);
    assert_eq!(bench.engine.take_spent().map(|spent| spent.message.here().unwrap().id), Some(1));
}

#[test]
fn levels_are_there_for_what_was_in_them_and_later_ones_stand_behind() {
    let mut bench = Bench::plain();
    let urgent = Place(9 << 60 | 3);
    bench.engine.restore(bench.now, bench.queue, restored(urgent, note(1), (0, 0))).unwrap();
    bench.engine.begin_at(bench.queue, 10);
    assert_eq!(bench.put(note(2)), Place(9 << 60 | 10));
    bench.check();
}
