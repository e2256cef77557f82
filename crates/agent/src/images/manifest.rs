//! Image manifests and indexes.
//!
//! In: an OCI or Docker (schema 2) document. Out: the manifest of an index for this platform, or the descriptors of an image.

use api::value::ValueExt as _;
use serde_json::Value;
use thiserror::Error;

use super::layers::MAX_LAYERS;
use super::name::is_digest;

/// The `Accept` header for manifests.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// Why a document cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ManifestError {
    /// The document is invalid.
    #[error("invalid manifest: {0}")]
    Invalid(String),
    /// There is no image for this platform.
    #[error("it has no image for {wanted}, only for {has}")]
    WrongPlatform {
        /// This platform.
        wanted: String,
        /// The available platforms.
        has: String,
    },
}

/// A platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Platform {
    architecture: String,
    /// Compatible variants, the best first.
    variants: Vec<&'static str>,
}

/// A content descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// 64 hexadecimal digits of a SHA-256.
    pub(super) digest: String,
    pub(super) size: u64,
}

/// An image manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) config: Descriptor,
    /// The lowest first.
    pub(super) layers: Vec<Descriptor>,
}

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Document {
    /// A manifest.
    Image(Parts),
    /// An index; the descriptor of the selected manifest.
    Index(Descriptor),
}

impl Platform {
    /// The platform of this host.
    pub(super) fn here() -> Self {
        Self::of(std::env::consts::ARCH)
    }

    fn of(architecture: &str) -> Self {
        let (architecture, variants): (_, &[&'static str]) = match architecture {
            "x86_64" => ("amd64", &[""]),
            "x86" => ("386", &[""]),
            "aarch64" => ("arm64", &["v8", ""]),
            "arm" => ("arm", &["v7", "v6", "v5", ""]),
            "powerpc64" => ("ppc64le", &[""]),
            "loongarch64" => ("loong64", &[""]),
            other => (other, &[""]),
        };
        Self { architecture: architecture.to_owned(), variants: variants.to_vec() }
    }

    /// How well an entry of an index fits; lower is better.
    fn rank(&self, image: &Value) -> Option<usize> {
        let platform = image.at("platform");
        let same = platform.text("architecture") == self.architecture && platform.text("os") == "linux";
        let rank = || self.variants.iter().position(|variant| *variant == platform.text("variant"));
        // Variants such as amd64/v3 may need CPU features that are missing here.
        if same { rank() } else { None }
    }

    /// The error for a configuration of another platform.
    pub(super) fn refuses(&self, config: &Value) -> Option<ManifestError> {
        let (os, architecture) = (config.text("os"), config.text("architecture"));
        let fits = matches!(os, "" | "linux") && (architecture.is_empty() || architecture == self.architecture);
        let has = format!("{os}/{architecture}");
        (!fits).then(|| ManifestError::WrongPlatform { wanted: self.to_string(), has })
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "linux/{}", self.architecture)
    }
}

fn wrong(why: impl Into<String>) -> ManifestError {
    ManifestError::Invalid(why.into())
}

impl Document {
    /// Reads a document.
    pub(super) fn read(bytes: &[u8], platform: &Platform) -> Result<Self, ManifestError> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        if value.at("schemaVersion").as_u64() != Some(2) {
            return Err(wrong("schemaVersion is not 2; push the image again with a current tool"));
        }
        match (value.has("manifests"), value.has("layers")) {
            // Ambiguous documents allow signature bypass (CVE-2021-41190).
            (true, true) => Err(wrong("it has both manifests and layers")),
            (true, false) => choose(value.items("manifests"), platform).map(Self::Index),
            (false, true) => parts(&value).map(Self::Image),
            (false, false) => Err(wrong("it has neither manifests nor layers")),
        }
    }
}

fn choose(all: &[Value], platform: &Platform) -> Result<Descriptor, ManifestError> {
    let ranked = all.iter().filter_map(|image| Some((platform.rank(image)?, image)));
    if let Some((_, best)) = ranked.min_by_key(|(rank, _)| *rank) {
        return descriptor(best);
    }
    // Archives with one image often have no platform; it is checked in the configuration.
    match all.first() {
        Some(first) if all.iter().all(|image| !image.has("platform")) => descriptor(first),
        _ => {
            let kinds = all.iter().take(20).map(|image| {
                let parts = ["os", "architecture", "variant"].map(|part| image.at("platform").text(part));
                parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
            });
            let has = kinds.collect::<Vec<_>>().join(", ");
            Err(ManifestError::WrongPlatform { wanted: platform.to_string(), has })
        }
    }
}

fn parts(value: &Value) -> Result<Parts, ManifestError> {
    let layers = value.items("layers");
    if layers.len() > MAX_LAYERS {
        return Err(wrong(format!("it has {} layers, more than {MAX_LAYERS}", layers.len())));
    }
    let kind = value.at("config").text("mediaType");
    if !matches!(
        kind,
        "" | "application/vnd.oci.image.config.v1+json" | "application/vnd.docker.container.image.v1+json"
    ) {
        return Err(wrong(format!("its config has the media type {kind}, which is not an image")));
    }
    if let Some(layer) = layers.iter().find(|layer| layer.text("mediaType").contains("foreign")) {
        return Err(wrong(format!("its layer {} is not in the registry", layer.text("digest"))));
    }
    Ok(Parts {
        config: descriptor(value.at("config"))?,
        layers: layers.iter().map(descriptor).collect::<Result<_, _>>()?,
    })
}

fn descriptor(value: &Value) -> Result<Descriptor, ManifestError> {
    let digest = value.text("digest");
    let hex = digest.strip_prefix("sha256:").filter(|hex| is_digest(hex));
    let hex = hex.ok_or_else(|| wrong(format!("{digest:?} is not a SHA-256 digest")))?;
    let size = value.at("size").as_u64().ok_or_else(|| wrong(format!("{digest} has no size")))?;
    Ok(Descriptor { digest: hex.to_owned(), size })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn digest(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    fn found(digit: char, platform: &Value) -> Value {
        json!({"digest": format!("sha256:{}", digest(digit)), "size": 3, "platform": platform})
    }

    fn read(value: &Value, architecture: &str) -> Result<Document, ManifestError> {
        Document::read(value.to_string().as_bytes(), &Platform::of(architecture))
    }

    #[test]
    fn an_index_selects_the_manifest_of_this_platform() {
        let index = json!({"schemaVersion": 2, "manifests": [
            found('0', &json!({"os": "windows", "architecture": "amd64"})),
            found('1', &json!({"os": "linux", "architecture": "amd64", "variant": "v3"})),
            found('2', &json!({"os": "linux", "architecture": "amd64"})),
            found('3', &json!({"os": "linux", "architecture": "arm", "variant": "v6"})),
            found('4', &json!({"os": "linux", "architecture": "arm", "variant": "v7"})),
            found('5', &json!({"os": "linux", "architecture": "arm64", "variant": "v8"})),
            found('6', &json!({"os": "unknown", "architecture": "unknown"})),
        ]});
        for (architecture, wanted) in [("x86_64", '2'), ("arm", '4'), ("aarch64", '5')] {
            let leads = Document::Index(Descriptor { digest: digest(wanted), size: 3 });
            assert_eq!(read(&index, architecture), Ok(leads));
        }
        let error = read(&index, "s390x").expect_err("none").to_string();
        assert!(error.contains("no image for linux/s390x, only for windows/amd64, linux/amd64/v3"), "{error}");
    }

    #[test]
    fn invalid_manifests_are_errors() {
        let layer = json!({"digest": format!("sha256:{}", digest('a')), "size": 5});
        let good = json!({"schemaVersion": 2, "config": layer, "layers": [layer, layer]});
        let Ok(Document::Image(parts)) = read(&good, "x86_64") else { panic!("an image") };
        assert_eq!((parts.layers.len(), parts.config.size), (2, 5));
        let with = |field: &str, value: Value| {
            let mut changed = good.clone();
            changed[field] = value;
            read(&changed, "x86_64").expect_err("refused").to_string()
        };
        assert!(with("schemaVersion", json!(1)).contains("schemaVersion"));
        assert!(with("manifests", json!([])).contains("both manifests and layers"));
        assert!(with("layers", json!(vec![layer.clone(); 128])).contains("128 layers"));
        assert!(with("layers", json!([{"digest": "sha256:../../x", "size": 1}])).contains("not a SHA-256 digest"));
        assert!(with("layers", json!([{"digest": layer["digest"], "size": -1}])).contains("no size"));
        assert!(with("config", json!({"mediaType": "application/vnd.cncf.helm.config.v1+json"})).contains("helm"));
    }
}
