//! The direction of dependencies between our crates: the table of the design, as data.

use serde_json::Value;

/// Each crate and the crates of ours that it may depend on. Dependencies of tests are free: a test
/// may look at a crate from anywhere.
const TABLE: &[(&str, &[&str])] = &[
    ("thetis-types", &[]),
    ("thetis-journal", &["thetis-types"]),
    ("thetis-object", &["thetis-types"]),
    ("thetis-meta", &["thetis-types"]),
    ("thetis-wal", &["thetis-types", "thetis-journal", "thetis-object", "thetis-meta"]),
    ("thetis-stream", &["thetis-types", "thetis-object", "thetis-meta", "thetis-wal"]),
    ("thetis-catalog", &["thetis-types", "thetis-meta", "thetis-stream"]),
    ("thetis-cursor", &["thetis-types", "thetis-meta", "thetis-stream"]),
    ("thetis-net", &[]),
    ("thetis-kafka", FRONT),
    ("thetis-pulsar", FRONT),
    ("thetis-text", FRONT),
    ("thetis-admin", FRONT),
    ("thetis-cluster", CORE),
    ("thetis", CORE),
    ("thetis-cli", ANY),
    ("thetis-sim", ANY),
    ("thetis-bench", ANY),
    ("thetis-fuzz", ANY),
    // From outside only.
    ("thetis-e2e", &[]),
    ("xtask", &[]),
];

/// A front knows one protocol and nothing of storage. It keeps small records of its own, such as
/// the next producer id, in metadata.
const FRONT: &[&str] = &[
    "thetis-types",
    "thetis-meta",
    "thetis-stream",
    "thetis-catalog",
    "thetis-cursor",
    "thetis-net",
];
/// What puts the core together.
const CORE: &[&str] = &[
    "thetis-types",
    "thetis-journal",
    "thetis-object",
    "thetis-meta",
    "thetis-wal",
    "thetis-stream",
    "thetis-catalog",
    "thetis-cursor",
];
/// Everything that may be depended on.
const ANY: &[&str] = &[
    "thetis-types",
    "thetis-journal",
    "thetis-object",
    "thetis-meta",
    "thetis-wal",
    "thetis-stream",
    "thetis-catalog",
    "thetis-cursor",
    "thetis-net",
    "thetis-kafka",
    "thetis-pulsar",
    "thetis-text",
    "thetis-admin",
    "thetis-cluster",
    "thetis",
];

/// Edges that the table does not have, and crates that it does not know.
pub(crate) fn check(metadata: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Only packages of the workspace have no source.
    for package in packages.iter().filter(|package| package["source"].is_null()) {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, may)) = TABLE.iter().find(|(known, _)| *known == name) else {
            findings.push(format!("{name}: a new crate needs a row in xtask/src/tidy/edges.rs"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice);
        for dependency in dependencies.unwrap_or_default() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let ours = dependency["source"].is_null();
            if ours && dependency["kind"] != "dev" && !may.contains(&on) {
                findings.push(format!("{name} must not depend on {on} (xtask/src/tidy/edges.rs)"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(name: &str, on: &str, kind: Option<&str>) -> Vec<String> {
        let dependency = json!({"name": on, "source": null, "kind": kind});
        check(&json!({"packages": [{"name": name, "source": null, "dependencies": [dependency]}]}))
    }

    #[test]
    fn edges_point_down() {
        assert_eq!(one("thetis-wal", "thetis-journal", None).len(), 0);
        assert_eq!(one("thetis-journal", "thetis-wal", None).len(), 1);
        assert_eq!(one("thetis-kafka", "thetis-journal", None).len(), 1);
        assert_eq!(one("thetis-kafka", "thetis-journal", Some("dev")).len(), 0);
        assert_eq!(one("thetis-e2e", "thetis-types", None).len(), 1);
        assert_eq!(one("thetis-new", "thetis-types", None).len(), 1);
    }

    #[test]
    fn foreign_crates_are_free() {
        let foreign = json!({"name": "bytes", "source": "registry", "kind": null});
        let package = json!({"name": "thetis-types", "source": null, "dependencies": [foreign]});
        let stranger = json!({"name": "bytes", "source": "registry", "dependencies": []});
        assert_eq!(check(&json!({"packages": [package, stranger]})).len(), 0);
    }

    #[test]
    fn the_table_has_no_circle() {
        // Each row may name only rows above it, but for the group that shares a list.
        for (position, (name, may)) in TABLE.iter().enumerate() {
            for on in *may {
                let below = TABLE[..position].iter().any(|(known, _)| known == on);
                assert!(below, "{name} may depend on {on}, which is not above it");
            }
        }
    }
}
