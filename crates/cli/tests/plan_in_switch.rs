//! `rdmc plan --in-switch` as it is run.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::common::{Outcome, Place};

fn plan(place: &Place, words: &str) -> Outcome {
    place.run_words(&format!("plan --in-switch {words}"))
}

fn stdout(words: &str) -> String {
    let outcome = plan(&Place::with(0), words);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{words}");
    outcome.out
}

fn json(words: &str) -> Value {
    serde_json::from_str(&stdout(&format!("{words} --json"))).expect("JSON")
}

/// Exit code and standard error of a command that prints nothing on standard output.
fn failure(place: &Place, words: &str) -> (i32, String) {
    let outcome = plan(place, words);
    assert_eq!(outcome.out, "", "{words}");
    (outcome.code.expect("no signal"), outcome.err)
}

const TESTBED: &str = "racks:4x2 --tor-only --sender a1 --receivers d1,a2";

#[test]
fn the_papers_testbed_has_the_published_loads() {
    // MC-RDMA figure 3. Switches save the sender every copy but one.
    let expected = "\
in-switch: a1 to 2 of 7 other hosts; 1 switch knows the group
tor-a, which merges answers
  → spine: rewritten for d1
  → a2: rewritten for it

a message crosses    in-switch     fanout      chain
the sender's uplink          1          2          1
the busiest link             1          2          1
all links                    5          6          8

link           in-switch     fanout      chain
a1 → tor-a             1          2          1
spine → tor-a          -          -          1
spine → tor-d          1          1          1
tor-a → spine          1          1          1
tor-a → a2             1          1          1
tor-d → spine          -          -          1
tor-d → d1             1          1          1
d1 → tor-d             -          -          1
";
    assert_eq!(stdout(TESTBED), expected);
}

#[test]
fn json_has_the_same_figures_as_the_text() {
    let shown = json(TESTBED);
    let expected = json!({"in_switch": 1.0, "fanout": 2.0, "chain": 1.0});
    for (pattern, load) in expected.as_object().unwrap() {
        assert_eq!(&shown["totals"][pattern]["sender_uplink"], load, "{pattern}");
        assert_eq!(&shown["links"][0][pattern], load, "{pattern}");
    }
    assert_eq!(shown["totals"]["fanout"]["busiest_link"], 2.0);
    assert_eq!(shown["totals"]["chain"]["all_links"], 8.0);
    let group =
        ["hosts", "sender", "receivers", "merging_switch"].map(|field| shown[field].clone());
    assert_eq!(group, [json!(8), json!("a1"), json!(["d1", "a2"]), json!("tor-a")]);
    assert_eq!(
        shown["switches"],
        json!([{"name": "tor-a", "copies": [
            {"next": ["spine"], "receivers": ["d1"], "rewritten": true},
            {"next": ["a2"], "receivers": ["a2"], "rewritten": true},
        ]}])
    );
    assert_eq!(shown["links"].as_array().unwrap().len(), 8);
    assert_eq!(shown["links"][0]["source"], "a1");
    assert_eq!(shown["links"][0]["target"], "tor-a");
}

#[test]
fn a_spine_that_copies_saves_more() {
    let group = "--sender a1 --receivers b1,c1,d1 --json";
    let uplink = |words: &str| -> f64 {
        let shown: Value = serde_json::from_str(&stdout(words)).unwrap();
        let links = shown["links"].as_array().unwrap();
        let up = links.iter().find(|link| link["source"] == "tor-a" && link["target"] == "spine");
        up.unwrap()["in_switch"].as_f64().unwrap()
    };
    assert_eq!(uplink(&format!("racks:4x2 {group}")), 1.0);
    assert_eq!(uplink(&format!("racks:4x2 --tor-only {group}")), 3.0);
}

#[test]
fn a_fat_tree_has_equal_paths() {
    let text = stdout("fat-tree:4 --sender h0 --receivers h4,h12,h14");
    let both = "  → aggregation-0-0 or aggregation-0-1: for h4, h12, h14\n";
    assert!(text.contains(&format!("edge-0-0, which merges answers\n{both}")), "{text}");
    // Switches that make the same copies share an entry; no copy forks at aggregation-0-0.
    let cores = "core-0, core-1\n  → aggregation-1-0: rewritten for h4\n  → aggregation-3-0: for h12, h14\n";
    assert!(text.contains(cores), "{text}");
    assert!(text.contains("edge-0-0 → aggregation-0-0       0.50       1.50"), "{text}");
    assert!(!text.contains("\naggregation-0-0\n"), "{text}");

    // The paper's simulated network (section VII-E), in its usual form and in the paper's.
    let usual = json("fat-tree:6");
    assert_eq!(usual["hosts"], 54);
    assert_eq!(usual["receivers"].as_array().unwrap().len(), 53);
    assert_eq!(usual["totals"]["in_switch"]["sender_uplink"], 1.0);
    assert_eq!(usual["totals"]["fanout"]["sender_uplink"], 53.0);
    assert_eq!(json("fat-tree:6x9 --members 27")["hosts"], 6 * 3 * 9);
}

#[test]
fn long_lists_are_truncated() {
    let text = stdout("fat-tree:6");
    assert!(
        text.contains(": for h3, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14 and 39 more\n")
    );
    assert!(text.ends_with("\nand 278 more links with at most 1; --json has all\n"), "{text}");
    assert_eq!(json("fat-tree:6")["links"].as_array().unwrap().len(), 20 + 278);
}

#[test]
fn sender_and_receivers_can_be_chosen() {
    let receivers = |words: &str| json(words)["receivers"].clone();
    assert_eq!(receivers("racks:2x2"), json!(["a2", "b1", "b2"]));
    assert_eq!(receivers("racks:2x2 --sender b1"), json!(["a1", "a2", "b2"]));
    assert_eq!(receivers("racks:2x2 --members 3"), json!(["a2", "b1"]));
    assert_eq!(receivers("racks:2x2 --receivers b2,b1"), json!(["b2", "b1"]));
    // A group has 64 receivers at most.
    assert_eq!(receivers("racks:40x4").as_array().unwrap().len(), 64);
    assert_eq!(receivers("racks:40x4 --members 65").as_array().unwrap().len(), 64);
    assert!(stdout("racks:40x4").starts_with("in-switch: a1 to 64 of 159 other hosts; "));
}

/// A topology with a plain spine, a host with two links, and a switch that is linked to nothing.
const FILE: &str = r#"
[[switch]]
name = "spine"
copies = false

[[switch]]
name = "left"
copies = true
hosts = ["a", "both"]
links = ["spine"]

[[switch]]
name = "right"
copies = true
hosts = ["b", "both"]
links = ["spine"]

[[switch]]
name = "island"
copies = true
hosts = ["crusoe"]

[[switch]]
name = "old"
copies = false
hosts = ["p"]
links = ["spine"]
"#;

fn with_file(text: &str) -> Place {
    let place = Place::with(0);
    fs::write(place.path("net.toml"), text).unwrap();
    place
}

#[test]
fn a_file_describes_any_network() {
    let outcome = plan(&with_file(FILE), "net.toml --sender a --receivers b,both,p");
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
    let expected = "\
in-switch: a to 3 of 4 other hosts; 1 switch knows the group
left, which merges answers
  → spine: rewritten for b
  → spine: rewritten for p
  → both: rewritten for it
";
    assert!(outcome.out.starts_with(expected), "{}", outcome.out);
}

#[test]
fn groups_without_a_tree_are_refused_with_the_reason() {
    let place = with_file(FILE);
    let one_switch = "has to be behind one switch that can copy, and is behind";
    for (words, message) in [
        ("--sender p --receivers a", format!("p {one_switch} old; let the members relay instead")),
        ("--sender both --receivers a", format!("both {one_switch} left, right; let the")),
        ("--sender a --receivers crusoe", "there is no path from a to crusoe".to_owned()),
    ] {
        let (code, error) = failure(&place, &format!("net.toml {words}"));
        assert_eq!(code, 1, "{words}: {error}");
        assert!(error.starts_with(&format!("rdmc: {message}")), "{words}: {error}");
    }
    // c's and d's copies may both come to q, which parts c3's from c1's.
    let meeting = r#"
switch = [
    { name = "first", copies = true, hosts = ["s"], links = ["p", "q", "r"] },
    { name = "p", copies = true, hosts = ["c3"], links = ["c"] },
    { name = "q", copies = true, hosts = ["c3"], links = ["c", "d"] },
    { name = "r", copies = true, links = ["d"] },
    { name = "c", copies = true, hosts = ["c1"] },
    { name = "d", copies = true, hosts = ["d1", "d2"] },
]"#;
    let (code, error) = failure(&with_file(meeting), "net.toml --receivers c1,c3,d1,d2");
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("would meet at q, which could not tell them apart"), "{error}");
}

#[test]
fn mistakes_in_a_file_have_their_line_and_a_remedy() {
    let spine = "[[switch]]\nname = \"x\"\ncopies = true\n";
    let many: String = (0..10_000).map(|index| format!("\"h{index}\",")).collect();
    let cases = [
        (
            String::new(),
            "there are no switches; add a [[switch]] with name, copies, hosts and links",
        ),
        (
            spine.to_owned(),
            "there are no hosts; add them to their switches, such as hosts = [\"a1\"",
        ),
        ("[[switch]]\nname = \"x\"\n".to_owned(), "line 1: missing field `copies`"),
        ("[[switch]]\ncopies = true\n".to_owned(), "line 1: missing field `name`"),
        (
            format!("{spine}host = [\"a\"]"),
            "line 4: unknown field `host`, expected one of `name`, `copies`, `hosts`, `links`",
        ),
        (format!("{spine}[router]\n"), "line 4: unknown field `router`, expected `switch`"),
        (
            "[[switch]]\nname = \"x\"\ncopies = 1\n".to_owned(),
            "line 3: invalid type: integer `1`, expected a boolean",
        ),
        (format!("{spine}hosts = [\"a\""), "line 4: "),
        (
            format!("{spine}\n{spine}"),
            "line 6: \"x\" is on line 2 already; give each switch a name of its own",
        ),
        (
            format!("{spine}hosts = [\"x\"]"),
            "line 4: \"x\" is a switch (line 2); put it into links, or rename the host",
        ),
        (
            format!("{spine}hosts = [\n  \"a\",\n  \"a\"]"),
            "line 6: \"a\" is in this list twice; name it once",
        ),
        (
            format!("{spine}hosts = [\"a b\"]"),
            "line 4: \"a b\" is not a name; use at least one character, and no spaces or commas",
        ),
        (format!("{spine}hosts = [\"\"]"), "line 4: \"\" is not a name"),
        (
            format!("{spine}links = [\"y\"]"),
            "line 4: \"y\" is not a switch; add a [[switch]] of this name, or correct it",
        ),
        (
            format!("{spine}hosts = [\"a\"]\nlinks = [\"a\"]"),
            "line 5: \"a\" is a host (line 4); put it into hosts",
        ),
        (
            format!("{spine}links = [\"x\"]"),
            "line 4: \"x\" is linked to itself; name the switch at the other end",
        ),
        (
            format!("{spine}[[switch]]\nname = \"y\"\ncopies = true\nlinks = [\"x\", \"x\"]"),
            "line 7: \"x\" is in this list twice; name it once",
        ),
        (
            format!("{spine}hosts = [{many}]"),
            "line 4: \"h9999\" is one too many; at most 10000 hosts and switches are possible",
        ),
    ];
    for (text, message) in cases {
        let (code, error) = failure(&with_file(&text), "net.toml");
        assert_eq!(code, 2, "{message}: {error}");
        assert!(error.starts_with(&format!("rdmc: net.toml: {message}")), "{message}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let place = with_file(FILE);
    let cases = [
        ("racks:4", "write racks:RACKSxHOSTS, such as racks:4x2"),
        ("racks:0x2", "write racks:RACKSxHOSTS"),
        ("racks:4xtwo", "write racks:RACKSxHOSTS"),
        ("fat-tree:5", "write fat-tree:PORTS with an even number"),
        ("fat-tree:6x0", "write fat-tree:PORTS with an even number"),
        ("racks:100x100", "at most 10000 hosts and switches"),
        ("racks:18446744073709551615x2", "at most 10000 hosts and switches"),
        ("fat-tree:1000000", "at most 10000 hosts and switches"),
        ("racks:1x1", "rdmc: a1 is the only host; a group needs at least two"),
        (
            "racks:4x2 --sender z9",
            "rdmc: --sender: z9 is not in the topology; hosts are a1, a2, b1",
        ),
        (
            "racks:8x2 --receivers spine",
            "rdmc: --receivers: spine is a switch; hosts are a1, a2, b1, b2, c1, c2, d1, d2, ...\n",
        ),
        ("racks:4x2 --receivers a1", "rdmc: --receivers: a1 is the sender; leave it out"),
        ("racks:4x2 --receivers a2,a2", "rdmc: --receivers: a2 is named twice"),
        (
            "racks:4x2 --members 9",
            "rdmc: the topology has 8 hosts and the group 9 members; use fewer",
        ),
        (
            "racks:4x2 --members 1",
            "rdmc: switches copy for groups of 2 to 65 members, the sender included",
        ),
        ("racks:40x4 --members 66", "rdmc: switches copy for groups of 2 to 65 members"),
        (
            "net.toml --tor-only",
            "rdmc: --tor-only is for racks:... and fat-tree:...; in net.toml, set copies = false",
        ),
        ("racks:4x2 --members 3 --receivers a2", "cannot be used with '--receivers <HOSTS>'"),
        ("racks:4x2 --blocks 3", "cannot be used with '--blocks <K>'"),
        ("racks:4x2 --algorithm chain", "cannot be used with '--algorithm <NAME>'"),
        ("racks:4x2 --explain --bytes 3", "cannot be used with"),
        ("racks:4x2 --burst 3", "cannot be used with '--burst <SIZE>'"),
    ];
    for (words, message) in cases {
        let (code, error) = failure(&place, words);
        assert_eq!(code, 2, "{words}: {error}");
        assert!(error.contains(message), "{words}: {error}");
    }
    let names: Vec<String> = (2..=66).map(|index| format!("a{index}")).collect();
    let (code, error) = failure(&place, &format!("racks:1x66 --receivers {}", names.join(",")));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("65 members were named") && error.contains("1 to 64"), "{error}");
    let (code, error) = failure(&place, "missing.toml");
    assert_eq!(code, 1, "{error}");
    assert!(
        error.starts_with("rdmc: missing.toml: ") && error.contains("fat-tree:PORTS"),
        "{error}"
    );
}

#[test]
fn options_of_switches_need_a_topology() {
    for (words, message) in [
        ("--members 4 --blocks 3 --sender a1", "'--blocks <K>' cannot be used with '--sender"),
        ("--members 4 --blocks 3 --tor-only", "'--blocks <K>' cannot be used with '--tor-only'"),
        ("--members 4 --explain --bytes 3 --tor-only", "cannot be used with '--tor-only'"),
        ("--receivers a1", "--in-switch <TOPOLOGY>"),
        ("--members 4 --sender a1", "--in-switch <TOPOLOGY>"),
    ] {
        let outcome = Place::with(0).run_words(&format!("plan {words}"));
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""), "{words}");
        assert!(outcome.err.contains(message), "{words}: {}", outcome.err);
    }
}

/// The page's topology, and each of its commands with what stands below it.
#[test]
fn the_documentation_shows_the_actual_output() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/in-switch.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let toml = blocks.iter().find_map(|block| block.strip_prefix("toml\n")).unwrap();
    let place = Place::with(0);
    fs::write(place.path("topology.toml"), toml).unwrap();
    let commands: Vec<(&str, &str)> = blocks
        .iter()
        .filter_map(|block| block.strip_prefix("\n$ rdmc ")?.split_once('\n'))
        .collect();
    assert_eq!(commands.len(), 2);
    for (words, shown) in commands {
        assert_eq!(place.run_words(words).out, shown, "{words}");
    }
}
