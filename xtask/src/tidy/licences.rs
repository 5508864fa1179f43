//! The licences of all that we depend on, from cargo's metadata, against the list in `deny.toml`.
//! It works without the network, and so also where cargo-deny is not installed.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Packages whose licence no list entry satisfies.
pub(crate) fn check(metadata: &Value, deny: &str) -> Result<Vec<String>> {
    let allowed = allowed(deny)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = &package["name"];
        let Some(licence) = package["license"].as_str() else {
            findings.push(format!("{name} names no licence"));
            continue;
        };
        match satisfied(licence, &allowed) {
            Ok(true) => {}
            Ok(false) => findings.push(format!("{name} is under {licence:?}, not in deny.toml")),
            Err(error) => findings.push(format!("{name}: {error:#}")),
        }
    }
    Ok(findings)
}

/// The entries of `allow` in `[licenses]`.
fn allowed(deny: &str) -> Result<Vec<String>> {
    let section = deny.split("[licenses]").nth(1).context("deny.toml has no [licenses]")?;
    let list = section.split("allow = [").nth(1).context("[licenses] has no `allow`")?;
    let list = list.split(']').next().unwrap_or_default();
    let entries: Vec<String> = list.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    if entries.is_empty() {
        bail!("`allow` in [licenses] is empty");
    }
    Ok(entries)
}

/// Whether an SPDX expression can be met. `/` is the old way to write `OR`.
fn satisfied(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let met = either(&mut words, allowed)?;
    if let Some(word) = words.last() {
        bail!("{word:?} is out of place in the licence {expression:?}");
    }
    Ok(met)
}

/// `words` holds what is left, the next word last. Both sides are read whatever the first one said.
fn either(words: &mut Vec<&str>, allowed: &[String]) -> Result<bool> {
    let mut met = both(words, allowed)?;
    while words.pop_if(|word| *word == "OR").is_some() {
        met |= both(words, allowed)?;
    }
    Ok(met)
}

fn both(words: &mut Vec<&str>, allowed: &[String]) -> Result<bool> {
    let mut met = single(words, allowed)?;
    while words.pop_if(|word| *word == "AND").is_some() {
        met &= single(words, allowed)?;
    }
    Ok(met)
}

fn single(words: &mut Vec<&str>, allowed: &[String]) -> Result<bool> {
    let word = words.pop().context("the licence ends too early")?;
    if word == "(" {
        let met = either(words, allowed)?;
        words.pop_if(|word| *word == ")").context("a parenthesis of the licence is not closed")?;
        return Ok(met);
    }
    let mut licence = word.to_owned();
    if words.pop_if(|word| *word == "WITH").is_some() {
        let exception = words.pop().context("the licence ends after WITH")?;
        licence = format!("{licence} WITH {exception}");
    }
    Ok(allowed.contains(&licence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DENY: &str =
        "[licenses]\nallow = [\n  \"MIT\",\n  \"Apache-2.0 WITH LLVM-exception\",\n]\n";

    #[test]
    fn expressions_are_understood() {
        let allowed = allowed(DENY).expect("the list is there");
        for good in [
            "MIT",
            "MIT/GPL-3.0",
            "GPL-3.0 OR MIT",
            "(GPL-3.0 OR MIT) AND MIT",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-3.0 AND GPL-2.0 OR MIT",
        ] {
            assert!(satisfied(good, &allowed).expect(good), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "MIT AND (GPL-3.0 OR GPL-2.0)"] {
            assert!(!satisfied(bad, &allowed).expect(bad), "{bad}");
        }
        for broken in ["", "MIT MIT", "(MIT", "MIT OR"] {
            assert!(satisfied(broken, &allowed).is_err(), "{broken}");
        }
    }

    #[test]
    fn packages_are_compared() {
        let packages = json!({"packages": [
            {"name": "good", "license": "MIT"},
            {"name": "bad", "license": "GPL-3.0"},
            {"name": "silent", "license": null},
        ]});
        assert_eq!(check(&packages, DENY).expect("it can be read").len(), 2);
        assert!(check(&packages, "[licenses]\nallow = []\n").is_err());
    }
}
