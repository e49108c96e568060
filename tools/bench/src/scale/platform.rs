//! Simulated networks, as SimGrid reads them.

use std::fmt::Write;

use clap::ValueEnum;

/// Members in a rack, and hosts at a leaf of the fat tree; ranks fill one after another.
pub const RACK: u32 = 32;

/// What links there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Shape {
    /// Two levels of switches with as many links up as down
    FatTree,
    /// Switches of racks under one core, with a part of the rate upwards (--oversubscription)
    Racks,
}

/// A network of hosts `h0` and on. All links are full-duplex.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    pub shape: Shape,
    pub members: u32,
    pub rate_bytes_per_s: f64,
    /// Of one link; there are two between hosts of a rack, and four between others.
    pub latency_ns: f64,
    /// By how much the links of a rack's hosts exceed the rack's own.
    pub oversubscription: f64,
}

impl Platform {
    /// In SimGrid's XML. There are as many racks as are needed, all full.
    pub fn to_xml(self) -> String {
        let racks = self.members.div_ceil(RACK);
        let mut xml = String::from(
            "<?xml version='1.0'?>\n\
             <!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n\
             <platform version=\"4.1\">\n",
        );
        // Writing into a string cannot fail.
        let _ = match self.shape {
            Shape::FatTree => self.write_fat_tree(&mut xml, racks),
            Shape::Racks => self.write_racks(&mut xml, racks),
        };
        xml + "</platform>\n"
    }

    fn write_fat_tree(self, xml: &mut String, leaves: u32) -> std::fmt::Result {
        let topology =
            format!(" topology=\"FAT_TREE\" topo_parameters=\"2;{RACK},{leaves};1,{RACK};1,1\"");
        self.write_cluster(xml, "tree", 0..leaves * RACK, &topology)
    }

    fn write_racks(self, xml: &mut String, racks: u32) -> std::fmt::Result {
        let up_rate = self.rate_bytes_per_s * f64::from(RACK) / self.oversubscription;
        writeln!(xml, "<zone id=\"core\" routing=\"Full\">")?;
        for rack in 0..racks {
            let router = format!(" router_id=\"s{rack}\"");
            self.write_cluster(xml, &format!("r{rack}"), rack * RACK..(rack + 1) * RACK, &router)?;
        }
        for rack in 0..racks {
            writeln!(xml, "<link id=\"u{rack}\" {}/>", self.link("bandwidth", "latency", up_rate))?;
        }
        for source in 0..racks {
            for target in source + 1..racks {
                writeln!(
                    xml,
                    "<zoneRoute src=\"r{source}\" dst=\"r{target}\" gw_src=\"s{source}\" \
                     gw_dst=\"s{target}\"><link_ctn id=\"u{source}\" direction=\"UP\"/>\
                     <link_ctn id=\"u{target}\" direction=\"DOWN\"/></zoneRoute>"
                )?;
            }
        }
        writeln!(xml, "</zone>")
    }

    fn write_cluster(
        self,
        xml: &mut String,
        name: &str,
        hosts: std::ops::Range<u32>,
        more: &str,
    ) -> std::fmt::Result {
        writeln!(
            xml,
            "<cluster id=\"{name}\" prefix=\"h\" suffix=\"\" radical=\"{}-{}\" speed=\"1Gf\" {}{more}/>",
            hosts.start,
            hosts.end - 1,
            self.link("bw", "lat", self.rate_bytes_per_s),
        )
    }

    fn link(self, bandwidth: &str, latency: &str, rate_bytes_per_s: f64) -> String {
        format!(
            "{bandwidth}=\"{rate_bytes_per_s}Bps\" {latency}=\"{}ns\" sharing_policy=\"SPLITDUPLEX\"",
            self.latency_ns
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xml(shape: Shape, members: u32) -> String {
        let (rate_bytes_per_s, latency_ns, oversubscription) = (12.5e9, 250.0, 4.0);
        Platform { shape, members, rate_bytes_per_s, latency_ns, oversubscription }.to_xml()
    }

    #[test]
    fn networks_have_room_for_all_members() {
        assert!(xml(Shape::FatTree, 2).contains("radical=\"0-31\""));
        let tree = xml(Shape::FatTree, 4096);
        assert!(tree.contains("radical=\"0-4095\"") && tree.contains("\"2;32,128;1,32;1,1\""));
        let racks = xml(Shape::Racks, 65);
        assert!(racks.contains("radical=\"64-95\"") && racks.contains("12500000000Bps"));
        assert_eq!(racks.matches("<zoneRoute").count(), 3);
        assert_eq!(racks.matches("bandwidth=\"100000000000Bps\"").count(), 3);
    }
}
