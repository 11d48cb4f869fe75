//! `service enable`, `disable` and `drain`: take an instance of another process out of service, and back.

use curator_discovery::{InstanceSerializer as _, JsonInstanceSerializer, RawPayload, ServiceInstance};
use curator_framework::{Chain, Error, make_path};

use super::{Change, discovery};
use crate::failure::Failure;
use crate::output::tell;
use crate::site::Site;

/// Writes `enabled` of an instance, and returns the exit status.
pub(super) async fn set_enabled(site: &Site, change: &Change, enabled: bool) -> Result<u8, Failure> {
    let Change { base, name, id } = change;
    let (client, codec) = (&site.client, JsonInstanceSerializer::new());
    client.session().await?;
    let path = make_path(&discovery(site, base)?.service_path(name)?, id);
    loop {
        let (data, stat) = match client.get_data().for_path(&path).await {
            Err(Error::NoNode { .. }) => return missing(site, change).await,
            read => read?,
        };
        let read = codec.deserialize(&data);
        let mut instance: ServiceInstance<RawPayload> =
            read.map_err(|error| Failure(70, format!("{path} is not an instance: {}", Chain(&error))))?;
        instance.enabled = enabled;
        let data = codec.serialize(&instance).map_err(|error| Failure(70, format!("{path}: {error}")))?;
        match client.set_data().with_version(stat.version).for_path(&path, data).await {
            Ok(_) => return Ok(0),
            Err(Error::NoNode { .. }) => return missing(site, change).await,
            // The process has updated its instance.
            Err(Error::BadVersion { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn missing(site: &Site, change: &Change) -> Result<u8, Failure> {
    site.check_chroot().await?;
    let Change { name, id, .. } = change;
    tell(&format!("the service {name} has no instance {id}: curator service ls {name} shows its instances"));
    Ok(1)
}
