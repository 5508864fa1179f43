//! Topics over their whole life: made, changed, deleted and made again, with metadata that fails
//! between two steps.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its functions too")]

#[path = "house/rig.rs"]
mod rig;

use std::sync::Arc;

use rig::{Rig, append, spec};
use thetis_catalog::{CatalogError, PARTITIONS_MAX};
use thetis_stream::{CREATE_STREAMS_MAX, Read};
use thetis_types::{Durability, ErrorKind, Offset};

#[test]
fn a_topic_made_again_never_shows_an_old_byte() {
    let rig = Rig::new();
    let catalog = rig.open();
    for round in 0..5 {
        let topic = catalog.create(spec("orders", 2)).unwrap();
        for stream in &topic.partitions {
            assert_eq!(stream.read(Offset(0), 100).unwrap(), Read::End(Offset(0)), "round {round}");
            append(stream, 10, round);
        }
        let old = catalog.delete("orders").unwrap();
        assert_eq!(old.id, topic.id);
        assert!(catalog.get("orders").is_none() && catalog.get_by_id(topic.id).is_none());
        for stream in &topic.partitions {
            assert!(catalog.store().get(stream.id()).is_none(), "a stream outlived its topic");
        }
    }
    catalog.create(spec("orders", 2)).unwrap();
    let again = rig.open();
    let topic = again.get("orders").unwrap();
    assert!(topic.partitions.iter().all(|stream| stream.committed_end() == Offset(0)));
    assert_eq!(again.store().len(), 2);
}

/// 1. The streams are created. 2. The put of the name is refused, so they belong to no topic and go
///    before the caller is told.
#[test]
fn streams_whose_name_was_refused_go_at_once() {
    let rig = Rig::new();
    let catalog = rig.open();
    catalog.create(spec("taken", 1)).unwrap();
    rig.meta.refuse_puts_under("topic");
    for answer in catalog.create_all(vec![spec("orders", 3), spec("more", 2)]) {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert_eq!(catalog.add_partitions("taken", 4).unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(catalog.get("orders").is_none());
    assert_eq!(catalog.store().len(), 1, "streams of no topic");
    rig.meta.heal();
    assert_eq!(catalog.create(spec("orders", 3)).unwrap().partition_count(), 3);
    assert_eq!(rig.open().store().len(), 4);
}

/// 1. The streams are created. 2. From then on metadata takes nothing, so they cannot be deleted
///    either. The next act deletes them, or else the next open.
#[test]
fn streams_that_could_not_be_deleted_go_with_the_next_act_or_open() {
    for reopens in [false, true] {
        let rig = Rig::new();
        let mut catalog = rig.open();
        rig.meta.refuse_all_puts_from("topic");
        assert!(catalog.create(spec("orders", 3)).is_err());
        assert_eq!(catalog.store().len(), 3, "the streams were to be created before the name");
        rig.meta.heal();
        match reopens {
            true => catalog = rig.open(),
            false => assert_eq!(catalog.delete("x").unwrap_err().kind(), ErrorKind::NotFound),
        }
        assert_eq!(catalog.store().len(), 0);
        assert!(catalog.list().is_empty());
        assert_eq!(catalog.create(spec("orders", 3)).unwrap().partition_count(), 3);
        assert_eq!(rig.open().store().len(), 3, "an open deleted streams of a topic");
    }
}

/// What two callers change at once is both changed: some keys of a topic are set, not all of them
/// replaced by what one of them saw before.
#[test]
fn some_keys_are_set_and_the_others_stay() {
    let rig = Rig::new();
    let catalog = rig.open();
    let id = catalog.create(spec("orders", 1)).unwrap().id;
    catalog.change_configs(id, &[("retention.ms", Some("5"))]).unwrap();
    let topic = catalog.change_configs(id, &[("thetis.durability", Some("os"))]).unwrap();
    assert_eq!(topic.configs().get("retention.ms"), "5");
    assert_eq!(topic.partitions[0].durability(), Durability::Os);
    let topic = catalog.change_configs(id, &[("retention.ms", None)]).unwrap();
    assert_eq!(topic.configs().set().len(), 1);
    assert_eq!(catalog.change_configs(id, &[("nothing", None)]).unwrap().configs().set().len(), 1);
    let unknown = catalog.change_configs(id, &[("retention.mss", Some("5"))]).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Invalid);
    catalog.delete("orders").unwrap();
    let new = catalog.create(spec("orders", 1)).unwrap();
    let gone = catalog.change_configs(id, &[("retention.ms", Some("5"))]).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound, "the name is another topic's");
    assert!(new.configs().set().is_empty());
}

/// The put happened, its answer was lost, and so is the answer to the question whether it did.
#[test]
fn a_creation_of_unknown_outcome_is_found_by_asking_again() {
    let rig = Rig::new();
    let catalog = rig.open();
    rig.meta.lose_answers_under("topic");
    assert!(matches!(catalog.create(spec("orders", 1)), Err(CatalogError::Meta(_))));
    rig.meta.heal();
    let error = catalog.create(spec("orders", 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let topic = catalog.get("orders").expect("a name that is taken can be looked up");
    append(&topic.partitions[0], 5, 0);
    assert_eq!(rig.open().get("orders").unwrap().id, topic.id);
}

/// Without looking again, every later change would be refused for ever, and a deletion would leave
/// a name bound to streams that are gone, which no open survives.
#[test]
fn a_change_of_unknown_outcome_does_not_stand_in_the_way_of_others() {
    let rig = Rig::new();
    let catalog = rig.open();
    catalog.create(spec("orders", 1)).unwrap();
    for name in ["delete", "configs", "partitions"] {
        rig.meta.lose_answers_under("topic");
        let configs = [("retention.ms".to_owned(), "5".to_owned())].into();
        assert!(catalog.set_configs("orders", configs).is_err());
        rig.meta.heal();
        let act = || match name {
            "configs" => catalog.set_configs("orders", [].into()),
            "partitions" => catalog.add_partitions("orders", 2),
            _ => catalog.delete("orders"),
        };
        // The first sees that someone changed the topic; whoever looks again goes on.
        if let Err(error) = act() {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{name}");
            assert_eq!(catalog.get("orders").unwrap().configs().get("retention.ms"), "5");
            act().unwrap();
        }
        let again = rig.open();
        assert_eq!(again.get("orders").is_none(), name == "delete");
        if name == "delete" {
            assert_eq!(again.store().len(), 0);
            catalog.create(spec("orders", 1)).unwrap();
        }
    }
    assert_eq!(rig.open().get("orders").unwrap().partition_count(), 2);
}

#[test]
fn a_deletion_of_unknown_outcome_can_be_repeated() {
    let rig = Rig::new();
    let catalog = rig.open();
    let stream = catalog.create(spec("orders", 1)).unwrap().partitions[0].id();
    rig.meta.lose_answers_under("topic");
    assert!(catalog.delete("orders").is_err());
    rig.meta.heal();
    catalog.delete("orders").unwrap();
    assert!(catalog.store().get(stream).is_none());
    assert_eq!(catalog.delete("orders").unwrap_err().kind(), ErrorKind::NotFound);
    catalog.create(spec("orders", 1)).unwrap();
    assert_eq!(rig.open().list().len(), 1);
}

#[test]
fn partitions_only_become_more_and_keep_their_records() {
    let rig = Rig::new();
    let catalog = rig.open();
    let topic = catalog.create(spec("orders", 2)).unwrap();
    append(&topic.partitions[1], 9, 0);
    let more = catalog.add_partitions("orders", 4).unwrap();
    assert_eq!((more.id, more.partition_count()), (topic.id, 4));
    assert_eq!(more.partitions[1].id(), topic.partitions[1].id());
    for (total, kind) in [(4, ErrorKind::Invalid), (1, ErrorKind::Invalid)] {
        assert_eq!(catalog.add_partitions("orders", total).unwrap_err().kind(), kind);
    }
    let too_many = catalog.add_partitions("orders", PARTITIONS_MAX + 1).unwrap_err();
    assert!(matches!(too_many, CatalogError::PartitionCount { .. }));
    let found = rig.open().get("orders").unwrap();
    assert_eq!(found.partition_count(), 4);
    assert_eq!(found.partitions[1].committed_end(), Offset(1));
    assert_eq!(found.partitions[3].committed_end(), Offset(0));
}

fn durability(level: &str) -> std::collections::BTreeMap<String, String> {
    [("thetis.durability".to_owned(), level.to_owned())].into()
}

#[test]
fn the_durability_of_a_topic_is_that_of_its_streams() {
    let rig = Rig::new();
    let catalog = rig.open();
    let topic = catalog.create(spec("orders", 2)).unwrap();
    let levels = |topic: &thetis_catalog::Topic| {
        topic.partitions.iter().map(thetis_stream::Stream::durability).collect::<Vec<_>>()
    };
    assert_eq!(levels(&topic), [Durability::Disk; 2]);
    for (name, level) in [("os", Durability::Os), ("memory", Durability::Memory)] {
        let topic = catalog.set_configs("orders", durability(name)).unwrap();
        assert_eq!(levels(&topic), [level; 2]);
        assert_eq!(levels(&rig.open().get("orders").unwrap()), [level; 2]);
    }
    let receipt = append(&topic.partitions[0], 1, 0);
    assert_eq!(receipt.durability, Durability::Memory);
    let topic = catalog.set_configs("orders", [].into()).unwrap();
    assert_eq!(levels(&topic), [Durability::Disk; 2]);
    let more = catalog.add_partitions("orders", 3).unwrap();
    assert_eq!(levels(&more), [Durability::Disk; 3]);
}

/// The topic's record and those of its streams are several writes. Between any two of them a topic
/// may say less than its streams keep to, never more (law ACK-DURABLE).
#[test]
fn no_stream_is_ever_weaker_than_its_topic_says() {
    for (from, to) in [("os", "disk"), ("disk", "os")] {
        for kind in ["topic", "stream"] {
            let rig = Rig::new();
            let catalog = rig.open();
            catalog.create(spec("orders", 2)).unwrap();
            catalog.set_configs("orders", durability(from)).unwrap();
            rig.meta.refuse_puts_under(kind);
            assert!(catalog.set_configs("orders", durability(to)).is_err());
            rig.meta.heal();
            for catalog in [Arc::new(rig.open()), Arc::new(catalog)] {
                let topic = catalog.get("orders").unwrap();
                let said = topic.configs().durability().unwrap_or_default();
                for stream in &topic.partitions {
                    assert!(stream.durability() >= said, "{from} to {to}, {kind} refused");
                }
            }
            // Asked again, it is done whole.
            let catalog = rig.open();
            catalog.set_configs("orders", durability(to)).unwrap();
            let topic = rig.open().get("orders").unwrap();
            let wanted: Durability = to.parse().unwrap();
            assert!(topic.partitions.iter().all(|stream| stream.durability() == wanted));
        }
    }
}

#[test]
fn what_is_not_allowed_is_refused_before_anything_is_made() {
    let rig = Rig::new();
    let catalog = rig.open();
    let long = "x".repeat(250);
    let mut odd = spec("orders", 1);
    odd.configs = [("retention.mss".to_owned(), "1".to_owned())].into();
    let refused = [spec("", 1), spec(&long, 1), spec("a\nb", 1), spec("orders", 0), odd];
    for spec in refused {
        assert_eq!(catalog.create(spec).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(catalog.store().len(), 0);
    let answers = catalog.create_all(vec![spec("a", 1), spec("a", 2), spec(&long[1..], 1)]);
    let kinds: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().map_err(|e| e.kind())).collect();
    assert!(matches!(kinds[..], [Ok(_), Err(ErrorKind::Exists), Ok(_)]));
}

/// A request may name many topics of many partitions, each of them allowed.
#[test]
fn more_streams_than_the_store_makes_at_once_are_made() {
    let rig = Rig::new();
    let catalog = rig.open();
    let topics = CREATE_STREAMS_MAX / PARTITIONS_MAX as usize + 1;
    let specs = (0..topics).map(|n| spec(&n.to_string(), PARTITIONS_MAX)).collect();
    assert!(catalog.create_all(specs).iter().all(Result::is_ok));
    assert_eq!(catalog.store().len(), topics * PARTITIONS_MAX as usize);
}
