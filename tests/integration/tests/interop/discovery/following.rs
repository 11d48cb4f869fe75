//! Caches and providers of each language over the instances of the other one.

use curator_discovery::{InstanceChange, ServiceDiscovery, ServiceInstance, ServiceProvider, ServiceType};
use curator_framework::Changes;
use curator_integration::env::{Env, in_time};
use curator_integration::on_every_server;

use super::{Javas, builder, loaded, registered, shown_of};
use crate::peer::Peer;

/// Returns the next change as `+node=payload`, `~node=old>new`, `-node=payload` or `!node`. A disabled instance has an
/// exclamation mark behind its payload.
async fn next(changes: &mut Changes<InstanceChange<String>>) -> String {
    let text =
        |instance: &ServiceInstance<String>| format!("{}{}", instance.payload, if instance.enabled { "" } else { "!" });
    match in_time(changes.recv()).await {
        Some(InstanceChange::Added { node, instance }) => format!("+{node}={}", text(&instance)),
        Some(InstanceChange::Updated { node, old, new }) => format!("~{node}={}>{}", text(&old), text(&new)),
        Some(InstanceChange::Removed { node, instance }) => format!("-{node}={}", text(&instance)),
        other => panic!("{other:?}"),
    }
}

async fn java_follows_ours(env: &Env, java: &Peer) {
    let base = env.path("ours");
    let discovery: ServiceDiscovery<String> = ServiceDiscovery::new(env.client().await, &base).unwrap();
    let mut javas = Javas::new(java, &base, "default");
    let kinds = [ServiceType::Static, ServiceType::Permanent, ServiceType::DynamicSequential];
    let instance = |id: &str| builder("web", id).payload("p".to_owned());
    let a = registered(&discovery, instance("a")).await;
    javas.does("follow web", "following").await;
    javas.sees("web", &[shown_of(&a)]).await;
    let b = registered(&discovery, instance("b")).await;
    javas.sees("web", &[shown_of(&a), shown_of(&b)]).await;
    javas.offers("web", "a b").await;
    in_time(a.update(|instance| "q".clone_into(&mut instance.payload))).await.unwrap();
    javas.sees("web", &[shown_of(&a), shown_of(&b)]).await;
    // The provider of Java's default form reads the field, which this form does not write.
    in_time(a.set_enabled(false)).await.unwrap();
    assert!(shown_of(&a).ends_with("\"enabled\":false}"));
    javas.sees("web", &[shown_of(&a), shown_of(&b)]).await;
    javas.offers("web", "b").await;
    in_time(a.set_enabled(true)).await.unwrap();
    javas.offers("web", "a b").await;
    for (kind, id) in kinds.iter().zip(["c", "d", "e"]) {
        let more = registered(&discovery, instance(id).service_type(*kind)).await;
        javas.sees("web", &[shown_of(&a), shown_of(&b), shown_of(&more)]).await;
        in_time(more.unregister()).await.unwrap();
        javas.sees("web", &[shown_of(&a), shown_of(&b)]).await;
    }
    in_time(a.unregister()).await.unwrap();
    javas.sees("web", &[shown_of(&b)]).await;
    javas.offers("web", "b").await;
    in_time(discovery.close()).await;
    javas.sees("web", &[]).await;
    javas.offers("web", "").await;
}

async fn we_follow_javas(env: &Env, java: Peer) {
    let (client, base) = (env.client().await, env.path("javas"));
    let discovery: ServiceDiscovery<String> = ServiceDiscovery::new(client, &base).unwrap();
    let cache = loaded(&discovery, "web").await;
    let (mut changes, provider) = (cache.changes(), ServiceProvider::new(cache.clone()));
    for form in ["default", "enabled"] {
        let mut javas = Javas::new(&java, &base, form);
        for kind in ["DYNAMIC", "STATIC", "PERMANENT"] {
            let fields = format!("name=web id={kind} type={kind}");
            javas.does(&format!("register {fields} payload=text:p"), "registered").await;
            assert_eq!(next(&mut changes).await, format!("+{kind}=p"));
            javas.does(&format!("update {fields} payload=text:q"), "updated").await;
            assert_eq!(next(&mut changes).await, format!("~{kind}=p>q"));
            assert_eq!(provider.all().len(), 1);
            // Java's default form loses the field.
            javas.does(&format!("update {fields} payload=text:r enabled=false"), "updated").await;
            let (mark, offered) = if form == "default" { ("", 1) } else { ("!", 0) };
            assert_eq!(next(&mut changes).await, format!("~{kind}=q>r{mark}"));
            assert_eq!(provider.all().len(), offered);
            javas.does(&format!("unregister {fields}"), "unregistered").await;
            assert_eq!(next(&mut changes).await, format!("-{kind}=r{mark}"));
        }
    }
    let mut javas = Javas::new(&java, &base, "default");
    javas.does("register name=web id=s type=DYNAMIC_SEQUENTIAL payload=text:p", "registered").await;
    let added = next(&mut changes).await;
    let instances = cache.instances();
    assert!(added.starts_with("+s000000") && added.ends_with("=p"), "{added}");
    assert_eq!((instances.len(), instances[0].id.as_str()), (1, "s"));
    java.end().await;
    assert!(next(&mut changes).await.starts_with("-s000000"));
}

on_every_server! {
    async fn each_follows_the_instances_of_the_other(env) {
        let java = Peer::java(&env).await;
        java_follows_ours(&env, &java).await;
        we_follow_javas(&env, java).await;
    }
}
