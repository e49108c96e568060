//! The manifest for Kubernetes by which a file is pushed to nodes, and what the manifests have in common.

use std::{fs, net::TcpListener, process::Command};

use serde_json::{Value, json};

use super::{USER, packaged};
use crate::common::{Outcome, Place, await_that, has_thread, signal};

/// The objects of a manifest, as JSON; none where there is nothing to parse YAML with.
pub fn objects(file: &str) -> Option<Vec<Value>> {
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))";
    let mut python = Command::new("python3");
    let input = fs::File::open(packaged(file)).unwrap();
    match python.args(["-c", script]).stdin(input).output() {
        Ok(output) if output.status.success() => {
            Some(serde_json::from_slice(&output.stdout).unwrap())
        }
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("No module named") => {
            println!("SKIPPED: YAML needs python3-yaml");
            None
        }
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("SKIPPED: YAML needs python3 and python3-yaml: {error}");
            None
        }
    }
}

/// The one object of this kind.
pub fn find<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = objects.iter().filter(|object| object["kind"] == kind).collect();
    let [one] = found[..] else { panic!("{kind}: {found:?}") };
    one
}

/// The pod of an object that has a template of it.
pub fn pod(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]
}

/// The arguments of a container, with other values for some of them.
pub fn arguments(container: &Value, values: &[(&str, &str)]) -> Vec<String> {
    let words = container["args"].as_array().unwrap();
    let words = words.iter().map(|word| word.as_str().expect("arguments are text"));
    let replaced = |word: &str| values.iter().find(|(old, _)| *old == word).map(|(_, new)| *new);
    words.map(|word| replaced(word).unwrap_or(word).to_owned()).collect()
}

/// Whether an option of a container has this value.
pub fn has_option(container: &Value, option: &str, value: &str) -> bool {
    arguments(container, &[]).windows(2).any(|words| words == [option, value])
}

/// The names of objects, or of parts of an object.
pub fn names(list: &Value) -> Vec<&str> {
    let names = list.as_array().into_iter().flatten();
    names.map(|it| it["metadata"]["name"].as_str().or(it["name"].as_str()).unwrap()).collect()
}

/// All containers of a pod.
pub fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = [&pod["initContainers"], &pod["containers"]];
    lists.into_iter().flat_map(|list| list.as_array().into_iter().flatten())
}

/// A headless service is that of this set's pods, whose names are known at once.
pub fn assert_service_of(service: &Value, set: &Value) {
    let (service, spec, name) = (&service["spec"], &set["spec"], &service["metadata"]["name"]);
    assert_eq!(service["clusterIP"], "None");
    assert_eq!(service["publishNotReadyAddresses"], true);
    let labels = &spec["template"]["metadata"]["labels"];
    assert_eq!(&service["selector"], labels);
    assert_eq!(&spec["selector"]["matchLabels"], labels);
    assert_eq!(&spec["serviceName"], name);
    assert_eq!(spec["podManagementPolicy"], "Parallel", "none waits for the one before");
}

/// The rules of the Pod Security Standard "restricted", and more: containers may write in this volume alone.
pub fn assert_may_do_little(pod: &Value, volumes: &[&str], writable: &str) {
    for host in ["hostNetwork", "hostPID", "hostIPC", "hostUsers"] {
        assert!(pod[host].is_null(), "{host}");
    }
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(
        pod["securityContext"],
        json!({
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
        })
    );
    for volume in pod["volumes"].as_array().unwrap() {
        let kinds: Vec<&String> = volume.as_object().unwrap().keys().collect();
        let is_allowed = |kind: &str| kind == "name" || volumes.contains(&kind);
        assert!(kinds.iter().all(|kind| is_allowed(kind)), "{kinds:?}");
    }
    for container in containers(pod) {
        assert_eq!(
            container["securityContext"],
            json!({
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            })
        );
        for (what, unit) in [("cpu", ""), ("memory", "Gi")] {
            let limit = container["resources"]["limits"][what].as_str();
            assert!(limit.is_some_and(|limit| limit.ends_with(unit)), "{container}");
        }
        let mounts = container["volumeMounts"].as_array().unwrap();
        let written = mounts.iter().filter(|mount| mount["readOnly"] != true);
        assert!(written.map(|mount| &mount["name"]).all(|name| name == writable), "{container}");
    }
}

/// Only these pods talk to each other, and look up names. Others may use these ports of theirs.
pub fn assert_policy_of(objects: &[Value], pods: &[&Value], public: Value) {
    let policy = &find(objects, "NetworkPolicy")["spec"];
    let expression = &policy["podSelector"]["matchExpressions"];
    let labels = pods.iter().map(|pod| &pod["spec"]["template"]["metadata"]["labels"]["app"]);
    let labels: Vec<&Value> = labels.collect();
    assert_eq!(*expression, json!([{"key": "app", "operator": "In", "values": labels}]));
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    let peers = json!([{"podSelector": policy["podSelector"]}]);
    // The ports are the system's choice.
    let mut ingress = vec![json!({"from": peers})];
    ingress.extend((!public.is_null()).then(|| json!({"ports": public})));
    assert_eq!(policy["ingress"], Value::from(ingress));
    let names = json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]);
    assert_eq!(policy["egress"], json!([{"to": peers}, {"ports": names}]));
}

/// An address of this machine that is free now.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

const FILE: &str = "kubernetes.yaml";

#[test]
fn the_manifest_of_a_push_fits_together() {
    let Some(objects) = objects(FILE) else { return };
    assert_eq!(objects.len(), 4, "Service, NetworkPolicy, StatefulSet, Job");
    let [service, copies, source] =
        ["Service", "StatefulSet", "Job"].map(|kind| find(&objects, kind));
    assert_service_of(service, copies);
    for of in [copies, source] {
        let pod = pod(of);
        let volumes = [names(&pod["volumes"]), names(&of["spec"]["volumeClaimTemplates"])].concat();
        assert_eq!(names(&pod["containers"][0]["volumeMounts"]), volumes);
        assert_eq!(
            pod["volumes"][0]["secret"]["defaultMode"], 0o400,
            "only the pod's user may read it"
        );
        assert!(pod["initContainers"].is_null());
    }
    // The names of the pods are those that are pushed to.
    let (spec, [receive, push]) =
        (&copies["spec"], [copies, source].map(|of| &pod(of)["containers"][0]));
    let count = spec["replicas"].as_u64().unwrap();
    let (name, port) = (&copies["metadata"]["name"], &service["spec"]["ports"][0]["port"]);
    let (name, domain) = (name.as_str().unwrap(), spec["serviceName"].as_str().unwrap());
    let to = format!("{name}-[0-{}].{domain}:{port}", count - 1);
    assert!(has_option(push, "--to", &to), "{to}");
    assert!(has_option(receive, "--listen", &format!("0.0.0.0:{port}")));
    assert!(has_option(push, "--protect", "encrypt"));
    let apart = &pod(copies)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(apart[0]["labelSelector"]["matchLabels"], spec["selector"]["matchLabels"]);
}

#[test]
fn pods_of_a_push_may_do_little() {
    let Some(objects) = objects(FILE) else { return };
    let pods = ["StatefulSet", "Job"].map(|kind| find(&objects, kind));
    for of in pods {
        assert_may_do_little(pod(of), &["persistentVolumeClaim", "secret"], "copies");
    }
    assert_policy_of(&objects, &pods, Value::Null);
}

/// The push first, as when pods start in any order.
#[test]
fn the_pods_of_a_push_copy_a_file() {
    let Some(objects) = objects(FILE) else { return };
    let place = Place::with(100_000);
    place.write_private("secret", &place.run_words("secret").out);
    let addresses = [free_address(), free_address()];
    let to = addresses.join(",");
    let pods = "rdmc-copies-[0-3].rdmc:7000";
    let start = |kind: &str, values: &[(&str, &str)]| {
        let words = arguments(&pod(find(&objects, kind))["containers"][0], values);
        place.rdmc(&words.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap()
    };
    let values =
        [("/models/model.bin", "object"), (pods, to.as_str()), ("/secret/secret", "secret")];
    let push = start("Job", &values);
    await_that("the push runs", || has_thread(push.id(), "rdmc-signals"));
    let receivers = addresses.each_ref().map(|address| {
        let directory = address.replace(':', "-");
        fs::create_dir(place.path(&directory)).unwrap();
        let values = [
            ("0.0.0.0:7000", address.as_str()),
            ("/secret/secret", "secret"),
            ("/copies", directory.as_str()),
        ];
        start("StatefulSet", &values)
    });
    let pushed = Outcome::of(push.wait_with_output().unwrap());
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    for (receiver, address) in receivers.into_iter().zip(&addresses) {
        // As when the set is deleted.
        signal(receiver.id(), "TERM");
        let ended = Outcome::of(receiver.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(place.is_copy(&format!("{}/object", address.replace(':', "-"))));
    }
}
