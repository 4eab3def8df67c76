//! A slide of the user's own: a TIFF file, of which each reader decodes the strips or tiles that it needs.
//!
//! Anybody may have written the file. What it says of sizes is held against bounds before memory is taken for it, and
//! [`examine`] decodes all of it once before anything is measured.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use tiff::decoder::{ChunkType, Decoder, DecodingResult, Limits};
use tiff::tags::{PlanarConfiguration, Tag};
use tiff::{ColorType, TiffError};

use super::picture::{crop, paste, Rect, PIXEL};
use super::query::FACTOR_MAX;

/// Pixels of a slide at most.
const PIXELS_MAX: u64 = 1 << 32;
/// Octets of a strip or tile at most, as red, green and blue; and of those that are kept.
const PART_MAX: usize = 64 << 20;
/// How to get a file that can be read.
const ADVICE: &str = "vips tiffsave IN OUT --tile --compression deflate makes one that can be read";

/// What is known of a slide of the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Whether it has one octet a pixel, and not three.
    pub is_grey: bool,
    /// Whether it is cut into tiles, and not into strips.
    pub is_tiled: bool,
    /// Octets of the file.
    pub octets: u64,
    /// CRC-32 of the file, as zip and gzip have it.
    pub crc32: u32,
}

/// A file that is open.
pub struct Scan {
    decoder: Decoder<BufReader<File>>,
    width: u32,
    height: u32,
    is_grey: bool,
    /// Columns and rows of a strip or tile.
    part: (u32, u32),
    /// Those that were decoded last, by their number.
    kept: HashMap<u32, Vec<u8>>,
    kept_octets: usize,
}

impl Scan {
    /// Opens a file, and sees from what it says of itself whether it can be read.
    ///
    /// # Errors
    /// It cannot, and what to do.
    pub fn open(file: &Path) -> Result<Scan> {
        let scan = opened(file).and_then(Scan::of);
        scan.with_context(|| format!("the slide {file:?}"))
    }

    fn of(file: File) -> Result<Scan> {
        let mut limits = Limits::default();
        limits.decoding_buffer_size = PART_MAX;
        limits.intermediate_buffer_size = PART_MAX;
        let decoder = Decoder::new(BufReader::new(file)).map_err(unreadable)?;
        let mut decoder = decoder.with_limits(limits);
        let (width, height) = decoder.dimensions().map_err(unreadable)?;
        ensure!(
            width >= FACTOR_MAX && height >= FACTOR_MAX,
            "it has {width} x {height} pixels, and {FACTOR_MAX} x {FACTOR_MAX} are the least that can be looked at"
        );
        ensure!(
            u64::from(width) * u64::from(height) <= PIXELS_MAX,
            "it has {width} x {height} pixels, and {PIXELS_MAX} are the most that are read: cut a part out of it"
        );
        let is_grey = match decoder.colortype().map_err(unreadable)? {
            ColorType::Gray(8) => true,
            ColorType::RGB(8) => false,
            other => bail!(
                "its pixels are {other:?}, and those that are read are RGB or grey of 8 bits: {ADVICE}, of an \
                 image that was made so before (vips colourspace, vips cast uchar)"
            ),
        };
        let planar: Option<u16> = decoder
            .find_tag_unsigned(Tag::PlanarConfiguration)
            .map_err(unreadable)?;
        ensure!(
            is_grey || planar != Some(PlanarConfiguration::Planar.to_u16()),
            "its colours are in planes of their own, and are to be pixel by pixel: {ADVICE}"
        );
        let (columns, rows) = decoder.chunk_dimensions();
        // A single strip may say that it has more rows than there are.
        let part = (columns, rows.min(height));
        let octets = u64::from(part.0) * u64::from(part.1) * PIXEL as u64;
        ensure!(
            part.0 > 0 && part.1 > 0 && octets <= PART_MAX as u64,
            "a strip or tile of it has {columns} x {rows} pixels, which is more than is taken into memory at once: \
             {ADVICE}"
        );
        Ok(Scan {
            decoder,
            width,
            height,
            is_grey,
            part,
            kept: HashMap::new(),
            kept_octets: 0,
        })
    }

    /// What can be looked at: all of it but for columns and rows at the edges that the largest factor does not take.
    pub fn whole(&self) -> Rect {
        Rect {
            x: 0,
            y: 0,
            width: self.width / FACTOR_MAX * FACTOR_MAX,
            height: self.height / FACTOR_MAX * FACTOR_MAX,
        }
    }

    /// The pixels of a rectangle that lies on it.
    ///
    /// # Errors
    /// The file was cut, or what it has cannot be decoded.
    pub fn pixels(&mut self, rect: Rect) -> Result<Vec<u8>> {
        let mut pixels = vec![0; rect.len()];
        let (columns, rows) = self.part;
        let mut cropped = Vec::new();
        for row in rect.y / rows..(rect.y + rect.height).div_ceil(rows) {
            for column in rect.x / columns..(rect.x + rect.width).div_ceil(columns) {
                let place = self.place(column, row);
                let part = place.within(rect);
                cropped.clear();
                crop(place, self.part(column, row)?, part, &mut cropped);
                paste(rect, &mut pixels, part, &cropped);
            }
        }
        Ok(pixels)
    }

    fn across(&self) -> u32 {
        self.width.div_ceil(self.part.0)
    }

    /// Where a strip or tile lies.
    fn place(&self, column: u32, row: u32) -> Rect {
        let (columns, rows) = self.part;
        let (x, y) = (column * columns, row * rows);
        Rect {
            x,
            y,
            width: columns.min(self.width - x),
            height: rows.min(self.height - y),
        }
    }

    /// The pixels of a strip or tile.
    fn part(&mut self, column: u32, row: u32) -> Result<&[u8]> {
        let number = row * self.across() + column;
        if !self.kept.contains_key(&number) {
            let pixels = self.decode(number, self.place(column, row))?;
            if self.kept_octets + pixels.len() > PART_MAX {
                self.kept.clear();
                self.kept_octets = 0;
            }
            self.kept_octets += pixels.len();
            self.kept.insert(number, pixels);
        }
        Ok(&self.kept[&number])
    }

    fn decode(&mut self, number: u32, place: Rect) -> Result<Vec<u8>> {
        let decoded = self.decoder.read_chunk(number).map_err(unreadable)?;
        let DecodingResult::U8(samples) = decoded else {
            bail!("its samples are not of 8 bits");
        };
        let pixels = match self.is_grey {
            true => samples.iter().flat_map(|&grey| [grey; PIXEL]).collect(),
            false => samples,
        };
        ensure!(
            pixels.len() == place.len(),
            "strip or tile {number} of it has not the pixels of {place:?}"
        );
        Ok(pixels)
    }
}

/// Decodes all of a file, strip by strip or tile by tile, and says what it is.
///
/// # Errors
/// It cannot be read to its end, and what to do.
pub fn examine(file: &Path) -> Result<Facts> {
    let mut scan = Scan::open(file)?;
    let facts = decoded(&mut scan).and_then(|()| {
        let (octets, crc32) = checksum(opened(file)?)?;
        Ok(Facts {
            width: scan.width,
            height: scan.height,
            is_grey: scan.is_grey,
            is_tiled: scan.decoder.get_chunk_type() == ChunkType::Tile,
            octets,
            crc32,
        })
    });
    facts.with_context(|| format!("the slide {file:?}"))
}

fn decoded(scan: &mut Scan) -> Result<()> {
    for row in 0..scan.height.div_ceil(scan.part.1) {
        for column in 0..scan.across() {
            scan.part(column, row)?;
        }
    }
    Ok(())
}

/// A file, if it is one: a pipe would wait for somebody, and a device has no end.
fn opened(file: &Path) -> Result<File> {
    let is_file = std::fs::metadata(file).context("cannot be read")?.is_file();
    ensure!(is_file, "is not a regular file");
    File::open(file).context("cannot be read")
}

/// Octets of a file, and the CRC-32 of them.
fn checksum(mut file: File) -> Result<(u64, u32)> {
    let (mut octets, mut crc32) = (0, crc32fast::Hasher::new());
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer).context("cannot be read")? {
            0 => return Ok((octets, crc32.finalize())),
            more => {
                octets += more as u64;
                crc32.update(&buffer[..more]);
            }
        }
    }
}

fn unreadable(error: TiffError) -> anyhow::Error {
    match error {
        TiffError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            anyhow::anyhow!("it ends in the middle: the file was cut short, or is no TIFF")
        }
        TiffError::UnsupportedError(what) => {
            anyhow::anyhow!("it is a TIFF of a kind that is not read ({what}): {ADVICE}")
        }
        TiffError::LimitsExceeded => anyhow::anyhow!(
            "a part of it is larger than what is taken into memory at once: {ADVICE}"
        ),
        other => anyhow::anyhow!("it is no TIFF that can be read: {other}"),
    }
}
