//! `--slide`: a slide of the user's own, which is read to its end before anything is measured.

use std::path::Path;
use std::time::Instant;

use anyhow::{bail, ensure, Context, Result};
use weft_applications::microscope::{examine, Facts};

use super::teller::say;
use super::Measure;
use crate::path::PathKind;
use crate::record::SlideRecord;

/// Reads the slide that the arguments name, makes its place absolute, as programs run in folders of their own choosing,
/// and says what a record has of it. `before`: what the record of a run that is gone on with has.
///
/// # Errors
/// The file cannot be read, is another one than before, or nobody would look at it.
pub(super) fn read(
    args: &mut Measure,
    before: Option<&SlideRecord>,
    is_begun: bool,
) -> Result<Option<SlideRecord>> {
    let slide = match &args.slide {
        None => None,
        Some(file) => {
            ensure!(
                args.paths().contains(&PathKind::Cluster),
                "a slide is what the microscopes of the path cluster look at, and no row of it was asked for: \
                 --path cluster"
            );
            let file = std::path::absolute(file)
                .with_context(|| format!("cannot resolve {}", file.display()))?;
            let start = Instant::now();
            let record = examined(&file)?;
            args.decoded_in = start.elapsed();
            args.slide = Some(file);
            Some(record)
        }
    };
    if is_begun {
        same(before, slide.as_ref())?;
    }
    Ok(slide)
}

fn examined(file: &Path) -> Result<SlideRecord> {
    let record = record(file, &examine(file)?);
    say(&record.describe());
    Ok(record)
}

fn record(file: &Path, facts: &Facts) -> SlideRecord {
    let name = file.file_name().unwrap_or(file.as_os_str());
    SlideRecord {
        name: name.to_string_lossy().escape_debug().to_string(),
        width: facts.width,
        height: facts.height,
        colours: if facts.is_grey { "grey" } else { "RGB" }.to_owned(),
        parts: if facts.is_tiled { "tiles" } else { "strips" }.to_owned(),
        octets: facts.octets,
        crc32: format!("{:08x}", facts.crc32),
    }
}

/// An error where samples of one row would be of two slides. A file may have got another name.
fn same(then: Option<&SlideRecord>, now: Option<&SlideRecord>) -> Result<()> {
    match (then, now) {
        (None, None) => Ok(()),
        (Some(then), Some(now)) if (then.octets, &then.crc32) == (now.octets, &now.crc32) => Ok(()),
        (Some(then), None) => bail!(
            "the run looked at a slide of the user's own, {}: name it again with --slide",
            then.describe()
        ),
        (Some(then), Some(_)) => bail!("the run looked at another slide: {}", then.describe()),
        (None, Some(_)) => bail!("the run looked at the slide that is drawn: leave --slide out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slide(crc32: u32) -> SlideRecord {
        let facts = Facts {
            width: 640,
            height: 480,
            is_grey: true,
            is_tiled: false,
            octets: 307_400,
            crc32,
        };
        record(Path::new("/home/somebody/a\u{1b}[2J\u{202e}b.tif"), &facts)
    }

    #[test]
    fn a_slide_is_described_without_what_acts_on_a_terminal() {
        assert_eq!(
            slide(0xabc).describe(),
            r#"slide "a\u{1b}[2J\u{202e}b.tif": 640 x 480 pixels, grey, in strips; 307400 octets, CRC-32 00000abc"#
        );
    }

    #[test]
    fn a_run_goes_on_with_the_slide_that_it_began_with() {
        let [one, other] = [1, 2].map(slide);
        assert!(same(None, None).is_ok());
        assert!(same(Some(&one), Some(&slide(1))).is_ok());
        for (then, now, words) in [
            (Some(&one), Some(&other), "another slide: slide \"a"),
            (Some(&one), None, "name it again with --slide"),
            (None, Some(&one), "leave --slide out"),
        ] {
            let why = same(then, now).unwrap_err().to_string();
            assert!(why.contains(words), "{why}");
        }
    }
}
