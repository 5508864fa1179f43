//! The table of docs/protocols/kafka.md, which people read, against the one that is served.

use super::ApiKey;

const DOCUMENT: &str = include_str!("../../../../docs/protocols/kafka.md");

fn table() -> String {
    let mut table = String::from("| key | API | served | advertised | flexible from |\n");
    table.push_str("|---|---|---|---|---|\n");
    for api in ApiKey::ALL {
        let (min, max) = (api.version_min(), api.version_max());
        let advertised = api.version_advertised_min();
        let flexible = (min..=max).find(|version| api.flexible(*version));
        let flexible = flexible.map_or("never".to_owned(), |version| version.to_string());
        table.push_str(&format!(
            "| {} | {api} | {min} to {max} | {advertised} to {max} | {flexible} |\n",
            api.key()
        ));
    }
    table
}

#[test]
fn the_document_lists_what_is_served() {
    let table = table();
    assert!(DOCUMENT.contains(&table), "docs/protocols/kafka.md needs this table:\n{table}");
}
