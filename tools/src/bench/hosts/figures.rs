//! What a program of perftest has printed: a head that names the columns, and one line of figures.
//!
//! ```text
//!  #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% ...
//!  8       1000          281.34         1019.88      310.22             318.45         40.67           512.00 ...
//!
//!  #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
//!  1048576    20               23.66              23.41                0.000023
//! ```
//! `t_avg` is what one takes as its program counts: half a round trip of sends and writes, a whole read
//! or atomic. A MB is 2^20 bytes. Of bandwidth and rate, which say the same, the one with more digits
//! counts.

/// From this size on the bandwidth has more digits than the rate.
const LARGE: usize = 4096;

/// Bytes of what perftest calls MB, and newer versions MiB.
const MB: f64 = 1_048_576.0;

/// Nanoseconds of one operation on `size` bytes; or what is wrong.
pub fn nanoseconds(said: &str, size: usize) -> Result<f64, String> {
    let mut lines = said.lines().map(str::trim);
    let head = lines.find(|line| line.starts_with("#bytes")).ok_or("it printed no figures")?;
    let line = lines.find(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let line = line.ok_or("it printed no figures below their names")?;
    // Names with a blank in them come behind the ones that count, but for these.
    let head = head.replace("BW ", "BW-");
    let names: Vec<&str> = head.split_whitespace().collect();
    let figures: Vec<&str> = line.split_whitespace().collect();
    let column = |name: &str| {
        let at = names.iter().position(|other| other.starts_with(name))?;
        Some((names[at], figures.get(at)?.parse::<f64>().ok()?))
    };
    let bytes = column("#bytes").map(|(_, bytes)| bytes);
    if bytes != Some(size as f64) {
        return Err(format!("its figures are not of {size} bytes"));
    }
    let figure = match (column("t_avg[usec]"), column("MsgRate[Mpps]"), column("BW-average")) {
        (Some((_, microseconds)), ..) => microseconds * 1e3,
        (_, Some((_, millions)), _) if size < LARGE => 1e3 / millions,
        (_, _, Some((name, rate))) if name.contains("[MB/sec]") || name.contains("[MiB/sec]") => {
            size as f64 * 1e9 / (rate * MB)
        }
        _ => return Err("its figures are none that are known".into()),
    };
    if figure.is_finite() && figure > 0.0 {
        return Ok(figure);
    }
    Err(format!("{figure} ns cannot be"))
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    /// What `ib_send_lat -c UD` 6.06 has printed, but for some lines of its head.
    const LATENCY: &str = "\
---------------------------------------------------------------------------------------
                    Send Latency Test
 Dual-port       : OFF\t\tDevice         : rxe0
 Number of qps   : 1\t\tTransport type : IB
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0011 PSN 0x5bbb5e
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:77:00:01
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 8       200          1638.31        69539.76      3940.51  \t       3996.46     \t5433.83\t\t45807.69 \t\t69539.76   
---------------------------------------------------------------------------------------
";

    /// The figures of `ib_read_lat` and `ib_atomic_lat`, in the same columns.
    const READ: &str = " 8       20          8686.99        84143.88      63940.39  \t       51880.14     \t21291.23\t\t84143.88 \t\t84143.88";
    const ATOMIC: &str = " 8       20          780.64         52515.16      3318.06  \t       11769.91     \t14482.74\t\t52515.16 \t\t52515.16";

    /// What those print that measure bandwidth.
    fn bandwidth(line: &str) -> String {
        format!(
            " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n{line}\n\
             ---------------------------------------------------------------------------------------\n"
        )
    }

    #[test]
    fn figures_are_read_from_what_was_printed() {
        assert_eq!(nanoseconds(LATENCY, 8), Ok(3996.46 * 1e3));
        let rate =
            bandwidth(" 8          1000             0.08               0.02   \t\t   0.002475");
        assert_eq!(nanoseconds(&rate, 8), Ok(1e3 / 0.002475));
        let large =
            bandwidth(" 1048576    5                2.66               0.68   \t\t   0.000001");
        assert_eq!(nanoseconds(&large, 1 << 20), Ok(1e9 / 0.68));
        let once =
            bandwidth(" 1048576    5                8.50               4.40   \t\t   0.000004");
        assert_eq!(nanoseconds(&once, 1 << 20), Ok(1e9 / 4.40));
        let writes =
            bandwidth(" 8          100              0.01               0.01   \t\t   0.000660");
        assert_eq!(nanoseconds(&writes, 8), Ok(1e3 / 0.00066));
        let head = &LATENCY[..LATENCY.find(" 8   ").unwrap()];
        let notice = "Device not recognized to implement inline feature. Disabling it\n";
        for (line, average) in [(READ, 51880.14), (ATOMIC, 11769.91)] {
            let said = format!("{notice}{head}{line}\n----\n");
            assert_eq!(nanoseconds(&said, 8), Ok(average * 1e3));
        }
        let newer = large.replace("MB/sec", "MiB/sec");
        assert_eq!(nanoseconds(&newer, 1 << 20), Ok(1e9 / 0.68));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |said: &str, size, why: &str| {
            let error = nanoseconds(said, size).unwrap_err();
            assert!(error.contains(why), "{said}: {error}");
        };
        refused("", 8, "no figures");
        refused("Couldn't connect to g1:18600\n", 8, "no figures");
        refused(&LATENCY[..LATENCY.find(" 8   ").unwrap()], 8, "below their names");
        refused(LATENCY, 64, "not of 64 bytes");
        // Cut off in the middle of the line.
        refused(&LATENCY[..LATENCY.find("3940.51").unwrap()], 8, "none that are known");
        refused(&LATENCY.replace("3996.46", "nan"), 8, "cannot be");
        refused(&LATENCY.replace("3996.46", "0.00"), 8, "cannot be");
        let none =
            bandwidth(" 8          1000             0.01               0.00   \t\t   0.000000");
        refused(&none, 8, "cannot be");
        let other = bandwidth(" 1048576    5   2.66   0.68   0.000001").replace("MB/", "Gb/");
        refused(&other, 1 << 20, "none that are known");
    }
}
