//! The manifest for Kubernetes whose pods fetch when they start.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Child, Command},
};

use serde_json::{Value, json};

use super::manifests::{
    arguments, assert_may_do_little, assert_policy_of, assert_service_of, find, free_address,
    has_option, names, objects, pod,
};
use crate::common::{Outcome, Place, await_that, signal};

const FILE: &str = "kubernetes-fetch.yaml";

/// The containers: of the server, those that fetch and wait, and of the application.
fn containers(objects: &[Value]) -> [&Value; 4] {
    let [server, application] = ["StatefulSet", "Deployment"].map(|kind| pod(find(objects, kind)));
    assert_eq!(names(&application["initContainers"]), ["fetch", "wait"], "in this order");
    let [fetch, wait] = [0, 1].map(|at| &application["initContainers"][at]);
    [&server["containers"][0], fetch, wait, &application["containers"][0]]
}

/// The path of the copy in the pods.
const COPY: &str = "/local/llama";
/// What they fetch.
const ORIGIN: &str = "rdmc-models-0.rdmc-models:/models/llama";

#[test]
fn the_manifest_of_a_fetch_fits_together() {
    let Some(objects) = objects(FILE) else { return };
    assert_eq!(objects.len(), 4, "Service, NetworkPolicy, StatefulSet, Deployment");
    let [service, server, application] =
        ["Service", "StatefulSet", "Deployment"].map(|kind| find(&objects, kind));
    assert_service_of(service, server);
    let labels = &application["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&application["spec"]["selector"]["matchLabels"], labels);
    let [serve, fetch, wait, main] = containers(&objects);
    let volumes = |of: &Value| names(&pod(of)["volumes"]).join(" ");
    assert_eq!([volumes(server), volumes(application)], ["secret models", "secret local"]);
    let mounts = |container: &Value| names(&container["volumeMounts"]).join(" ");
    assert_eq!(
        [serve, fetch, wait, main].map(mounts),
        ["secret models", "secret local", "local", "local"]
    );
    for of in [server, application] {
        let secret = &pod(of)["volumes"][0]["secret"];
        assert_eq!(
            (&secret["defaultMode"], &secret["secretName"]),
            (&0o400.into(), &"rdmc-fetch".into())
        );
    }
    // The name of the first pod is that which is fetched from, at the service's port; what is fetched is below what is served.
    let [set, domain] = [server, service].map(|of| of["metadata"]["name"].as_str().unwrap());
    let port = &service["spec"]["ports"][0]["port"];
    assert_eq!(format!("{set}-0.{domain}:/models/llama"), ORIGIN);
    assert_eq!(arguments(fetch, &[])[1], ORIGIN);
    assert_eq!(*port, 7700, "the default of fetch");
    assert!(has_option(serve, "--listen", &format!("0.0.0.0:{port}")));
    assert_eq!(arguments(serve, &[])[1], "/models");
    for container in [serve, fetch] {
        assert!(has_option(container, "--protect", "encrypt"), "{container}");
    }
    // It goes on while the application runs, which begins with the copy.
    assert_eq!(fetch["restartPolicy"], "Always");
    assert!(has_option(fetch, "--share", "31536000"));
    assert!(wait["restartPolicy"].is_null());
    assert!(wait["command"][2].as_str().unwrap().contains(COPY));
    assert!(has_option(main, "--model", COPY));
}

#[test]
fn pods_of_a_fetch_may_do_little() {
    let Some(objects) = objects(FILE) else { return };
    let pods = ["StatefulSet", "Deployment"].map(|kind| find(&objects, kind));
    assert_may_do_little(pod(pods[0]), &["persistentVolumeClaim", "secret"], "none");
    assert_may_do_little(pod(pods[1]), &["emptyDir", "secret"], "local");
    assert_policy_of(&objects, &pods, json!([{"port": 8000, "protocol": "TCP"}]));
}

#[test]
fn pods_that_fetch_share_a_directory_and_find_it_again() {
    let Some(objects) = objects(FILE) else { return };
    let [serve, fetch, wait, _] = containers(&objects);
    let place = Place::with(3_000_000);
    place.write_private("secret", &place.run_words("secret").out);
    fs::create_dir_all(place.path("models/llama")).unwrap();
    fs::rename(place.path("object"), place.path("models/llama/object")).unwrap();
    let start = |container: &Value, values: &[(&str, &str)]| -> Child {
        let words = arguments(container, values);
        place.rdmc(&words.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap()
    };
    let address = free_address();
    let secret = ("/secret/secret", "secret");
    let mut server =
        start(serve, &[("/models", "models"), ("0.0.0.0:7700", address.as_str()), secret]);
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.next().unwrap().contains("serving on"));
    let origin = format!("{address}:llama");
    let start_pod = |name: &str| {
        fs::create_dir_all(place.path(name)).unwrap();
        let volume = format!("{name}/");
        let pod = start(fetch, &[(ORIGIN, &origin), ("/local/", &volume), secret]);
        let copy = place.path(name).join("llama");
        let command = wait["command"].as_array().unwrap();
        let command: Vec<&str> = command.iter().map(|word| word.as_str().unwrap()).collect();
        let command: Vec<String> =
            command.iter().map(|word| word.replace(COPY, copy.to_str().unwrap())).collect();
        let mut waits = Command::new(&command[0]).args(&command[1..]).spawn().unwrap();
        await_that("the copy is there", || copy.exists());
        assert!(waits.wait().unwrap().success(), "the application may start");
        assert!(place.is_copy(&format!("{name}/llama/object")));
        pod
    };
    // As when a pod is deleted.
    let end = |pod: Child| {
        signal(pod.id(), "TERM");
        let ended = Outcome::of(pod.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    let mut await_line = |words: &str| {
        let found = said.find(|line| line.contains(words));
        found.unwrap_or_else(|| panic!("no line with {words:?}"))
    };
    let first = start_pod("first");
    await_line("has \"");
    let second = start_pod("second");
    await_line("has \"");
    end(first);
    end(second);
    let line = await_line("sent from here");
    assert!(line.contains("2 copies, 2.86 MiB sent from here"), "{line}");
    // Its container starts again, in the same volume.
    let inode = || fs::metadata(place.path("first/llama/object")).unwrap().ino();
    let before = inode();
    let again = start_pod("first");
    await_line("has \"");
    end(again);
    let line = await_line("sent from here");
    assert!(line.contains("1 copy, 0 B sent from here"), "{line}");
    assert_eq!(inode(), before);
    assert_eq!(place.temporaries(), Vec::<PathBuf>::new());
    signal(server.id(), "TERM");
    assert_eq!(server.wait().unwrap().code(), Some(0));
}
