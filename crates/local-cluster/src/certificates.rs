//! The cluster's own certificate authority, and the identities it signs. Nothing here touches files.
//!
//! All keys are made for one cluster and end with it, so certificates carry no useful end date.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate with its private key, both PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, PEM.
    pub certificate: String,
    /// The private key, PKCS#8 PEM.
    pub key: String,
}

/// Who a client certificate says its holder is.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The user's name (the certificate's CN).
    pub user: &'a str,
    /// The user's group (the certificate's O).
    pub group: Option<&'a str>,
}

/// The authority that both the API server and its clients trust.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// Makes a new authority.
    pub fn generate() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "local-cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// The authority's certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// An identity for a server that is reached by `names` (host names or addresses).
    pub fn server(&self, names: &[&str]) -> Result<Identity, rcgen::Error> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names)?;
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// An identity for a client of the API server.
    pub fn client(&self, subject: Subject<'_>) -> Result<Identity, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, subject.user);
        if let Some(group) = subject.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity, rcgen::Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

/// The keys of service account tokens, both PEM.
pub struct TokenKeys {
    /// Signs tokens; PKCS#8.
    pub private: String,
    /// Checks them.
    pub public: String,
}

impl TokenKeys {
    /// Makes new keys.
    pub fn generate() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        Ok(Self { private: key.serialize_pem(), public: key.public_key_pem() })
    }
}
