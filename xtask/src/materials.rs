//! The bill of materials: which crates of others our binaries have in them, for tools that look for versions with known
//! faults. CycloneDX 1.5 (ECMA-424), beside the binaries and in every package.

use serde_json::{json, Value};

use crate::third_party::Crate;

/// The document. No date and no random number is in it: of one commit it is one text.
pub fn document(version: &str, crates: &[Crate<'_>]) -> Value {
    let name = |of: &Crate| format!("pkg:cargo/{}@{}", of.name, of.version);
    let own = format!("pkg:generic/weft@{version}");
    let components: Vec<Value> = crates
        .iter()
        .map(|of| {
            json!({
                "type": "library",
                "bom-ref": name(of),
                "name": of.name,
                "version": of.version,
                "purl": name(of),
                "scope": "required",
                // Cargo takes a slash for OR, too, which SPDX does not.
                "licenses": [{"expression": of.licence.replace('/', " OR ")}],
            })
        })
        .collect();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "weft",
                "version": version,
                "purl": own,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": crates.iter().map(name).collect::<Vec<_>>()}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{third_party, workspace};

    #[test]
    fn each_crate_is_named_once_by_its_address() {
        let metadata = workspace::with_dependencies().unwrap();
        let crates = third_party::shipped(&metadata);
        let document = document("1.2.3", &crates);
        let components = document["components"].as_array().unwrap();
        assert_eq!(components.len(), crates.len());
        for (component, of) in components.iter().zip(&crates) {
            let purl = format!("pkg:cargo/{}@{}", of.name, of.version);
            assert_eq!(component["purl"], purl);
            let licence = component["licenses"][0]["expression"].as_str().unwrap();
            assert!(!licence.contains('/') && !licence.is_empty(), "{purl}");
        }
        assert_eq!(document["metadata"]["component"]["version"], "1.2.3");
    }
}
