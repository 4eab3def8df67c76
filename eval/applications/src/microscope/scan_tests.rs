//! Slides of the user's own: small files, whole and hostile.

use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use tempfile::TempDir;
use tiff::encoder::colortype::{ColorType, Gray16, Gray8, RGB8};
use tiff::encoder::{Compression, TiffEncoder};
use tiff::tags::Tag;

use super::picture::{Rect, PIXEL};
use super::scan::{examine, Scan};
use super::tests::looked;
use super::{Query, Slide, UNIT_MIN};

/// Columns and rows, of which none is a multiple of anything.
const SIZE: (u32, u32) = (1283, 707);
/// Columns and rows of a tile.
const TILE: u32 = 64;

/// An octet of a pixel, such that none is like its neighbours.
fn sample(x: u32, y: u32, colour: u32) -> u8 {
    (x * 7 + y * 13 + x * y / 5 + colour * 91) as u8
}

/// The samples of a rectangle, row by row, `colours` for each pixel.
fn samples(rect: Rect, colours: u32) -> Vec<u8> {
    let mut samples = Vec::new();
    for y in rect.y..rect.y + rect.height {
        for x in rect.x..rect.x + rect.width {
            samples.extend((0..colours).map(|colour| sample(x, y, colour)));
        }
    }
    samples
}

fn whole() -> Rect {
    let (width, height) = SIZE;
    Rect {
        x: 0,
        y: 0,
        width,
        height,
    }
}

/// A file of strips.
fn strips<C: ColorType<Inner = u8>>(colours: u32, rows: u32, compression: Compression) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let mut encoder = TiffEncoder::new(&mut file)
        .unwrap()
        .with_compression(compression);
    let mut image = encoder.new_image::<C>(SIZE.0, SIZE.1).unwrap();
    image.rows_per_strip(rows).unwrap();
    image.write_data(&samples(whole(), colours)).unwrap();
    file.into_inner()
}

/// A file whose directory says this besides its size, with all that it says of its data: where it is, and how long.
fn file_of(
    data: &[Vec<u8>],
    [at, len]: [Tag; 2],
    longs: &[(Tag, u32)],
    shorts: &[(Tag, u16)],
) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let mut encoder = TiffEncoder::new(&mut file).unwrap();
    let mut directory = encoder.image_directory().unwrap();
    let mut offsets = Vec::new();
    for part in data {
        offsets.push(directory.write_data(&part[..]).unwrap() as u32);
    }
    let lengths: Vec<u32> = data.iter().map(|part| part.len() as u32).collect();
    directory.write_tag(at, &offsets[..]).unwrap();
    directory.write_tag(len, &lengths[..]).unwrap();
    for &(tag, value) in [(Tag::ImageWidth, SIZE.0), (Tag::ImageLength, SIZE.1)]
        .iter()
        .chain(longs)
    {
        directory.write_tag(tag, value).unwrap();
    }
    let usual = [
        (Tag::SamplesPerPixel, 3),
        (Tag::Compression, 1),
        (Tag::PhotometricInterpretation, 2),
    ];
    for &(tag, value) in usual.iter().chain(shorts) {
        directory.write_tag(tag, value).unwrap();
    }
    directory
        .write_tag(Tag::BitsPerSample, &[8_u16, 8, 8][..])
        .unwrap();
    directory.finish().unwrap();
    file.into_inner()
}

/// A file of tiles, each with as much beyond the edges of the slide as it takes.
fn tiles() -> Vec<u8> {
    let mut data = Vec::new();
    for row in 0..SIZE.1.div_ceil(TILE) {
        for column in 0..SIZE.0.div_ceil(TILE) {
            let tile = Rect {
                x: column * TILE,
                y: row * TILE,
                width: TILE,
                height: TILE,
            };
            data.push(samples(tile, 3));
        }
    }
    let longs = [(Tag::TileWidth, TILE), (Tag::TileLength, TILE)];
    file_of(&data, [Tag::TileOffsets, Tag::TileByteCounts], &longs, &[])
}

/// A file of a strip for each colour.
fn planes() -> Vec<u8> {
    let data = vec![samples(whole(), 1); 3];
    let longs = [(Tag::RowsPerStrip, SIZE.1)];
    let shorts = [(Tag::PlanarConfiguration, 2)];
    file_of(
        &data,
        [Tag::StripOffsets, Tag::StripByteCounts],
        &longs,
        &shorts,
    )
}

fn kept(octets: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slide.tif");
    fs::write(&file, octets).unwrap();
    (folder, file)
}

/// Why a file is refused.
fn complaint(octets: &[u8]) -> String {
    let (_folder, file) = kept(octets);
    format!("{:#}", examine(&file).unwrap_err())
}

/// The file with another value of a tag of the first directory, whose values are 4 octets in the entry itself.
fn with_tag(octets: &[u8], tag: Tag, value: u32) -> Vec<u8> {
    let mut octets = octets.to_vec();
    let word = |at: usize| u32::from_le_bytes(octets[at..at + 4].try_into().unwrap());
    let short = |at: usize| u16::from_le_bytes(octets[at..at + 2].try_into().unwrap());
    let directory = word(4) as usize;
    let entries = (0..short(directory) as usize).map(|entry| directory + 2 + entry * 12);
    let entry = entries
        .into_iter()
        .find(|&entry| short(entry) == tag.to_u16())
        .unwrap();
    // As a LONG, of which there is one.
    octets[entry + 2..entry + 4].copy_from_slice(&4_u16.to_le_bytes());
    octets[entry + 4..entry + 8].copy_from_slice(&1_u32.to_le_bytes());
    octets[entry + 8..entry + 12].copy_from_slice(&value.to_le_bytes());
    octets
}

#[test]
fn what_is_read_is_what_was_written_in_strips_and_tiles() {
    let deflate = Compression::Deflate(Default::default());
    let files = [
        (strips::<RGB8>(3, 16, Compression::Uncompressed), 3),
        (strips::<RGB8>(3, SIZE.1, deflate), 3),
        (strips::<RGB8>(3, 1, Compression::Lzw), 3),
        (strips::<Gray8>(1, 100, Compression::Packbits), 1),
        (tiles(), 3),
    ];
    let rects = [
        Rect {
            x: 0,
            y: 0,
            width: 8,
            height: 8,
        },
        Rect {
            x: 1000,
            y: 500,
            width: 280,
            height: 200,
        },
        whole(),
    ];
    for (octets, colours) in files {
        let (_folder, file) = kept(&octets);
        let mut scan = Scan::open(&file).unwrap();
        for rect in rects {
            let wanted: Vec<u8> = match colours {
                1 => samples(rect, 1)
                    .iter()
                    .flat_map(|&grey| [grey; PIXEL])
                    .collect(),
                _ => samples(rect, 3),
            };
            assert!(scan.pixels(rect).unwrap() == wanted, "{rect:?}, {colours}");
        }
        let facts = examine(&file).unwrap();
        assert_eq!((facts.width, facts.height), SIZE);
        assert_eq!(facts.is_grey, colours == 1);
        assert_eq!(facts.octets, octets.len() as u64);
        assert_eq!(facts.crc32, crc32fast::hash(&octets));
    }
}

#[test]
fn each_view_of_a_slide_of_the_users_own_is_what_one_process_computes() {
    for octets in [
        tiles(),
        strips::<RGB8>(3, 16, Compression::Uncompressed),
        strips::<Gray8>(1, 64, Compression::Lzw),
    ] {
        let (_folder, file) = kept(&octets);
        let slide = Slide::open(Some(&file)).unwrap().whole();
        assert_eq!((slide.width, slide.height), (1280, 704));
        looked(Some(&file), UNIT_MIN, &Query::tour(6, slide));
    }
}

#[test]
fn every_cut_of_a_file_is_refused_in_words() {
    for octets in [tiles(), strips::<RGB8>(3, 64, Compression::Lzw)] {
        for end in (0..octets.len()).step_by(octets.len() / 23) {
            let complaint = complaint(&octets[..end]);
            let is_told = ["cut short", "no TIFF", "of a kind that is not read"]
                .iter()
                .any(|words| complaint.contains(words));
            assert!(is_told, "{end}: {complaint}");
            assert!(complaint.contains("slide.tif"), "{complaint}");
        }
    }
}

#[test]
fn what_cannot_be_read_says_what_to_do() {
    let good = strips::<RGB8>(3, 16, Compression::Uncompressed);
    let with = |tag, value| complaint(&with_tag(&good, tag, value));
    let deep = {
        let mut file = Cursor::new(Vec::new());
        let mut encoder = TiffEncoder::new(&mut file).unwrap();
        encoder
            .write_image::<Gray16>(64, 64, &vec![7; 64 * 64])
            .unwrap();
        file.into_inner()
    };
    for (complaint, wanted) in [
        (complaint(&deep), "Gray(16), and those that are read are"),
        (complaint(b"GIF89a"), "it is no TIFF that can be read"),
        (complaint(b""), "it is no TIFF that can be read"),
        (with(Tag::ImageWidth, 7), "7 x 707 pixels, and 8 x 8"),
        (with(Tag::ImageWidth, 0), "no TIFF that can be read"),
        (
            with(Tag::ImageWidth, u32::MAX),
            "4294967295 x 707 pixels, and 4294967296",
        ),
        // As few as may be, and a strip that is more than is taken into memory.
        (
            with(Tag::ImageWidth, 6_000_000),
            "a strip or tile of it has 6000000 x 16",
        ),
        (with(Tag::ImageLength, 4000), "no TIFF that can be read"),
        (complaint(&planes()), "in planes of their own"),
        (with(Tag::Compression, 7), "of a kind that is not read"),
        (with(Tag::Compression, 5), "it "),
        (with(Tag::SamplesPerPixel, 4), "it "),
        (with(Tag::StripOffsets, 7), "no TIFF that can be read"),
    ] {
        assert!(complaint.contains(wanted), "{complaint}, not {wanted}");
    }
    let tile = with_tag(&tiles(), Tag::TileWidth, 1 << 31);
    let told = complaint(&tile);
    assert!(told.contains("it "), "{told}");
    for place in ["/dev/zero", "/", "/no/such/file"] {
        let told = format!("{:#}", examine(place.as_ref()).unwrap_err());
        assert!(told.contains("the slide \"/"), "{told}");
    }
}

#[test]
fn a_file_with_any_octets_changed_is_read_or_refused() {
    let mut state = 7_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut refused = 0;
    for good in [tiles(), strips::<RGB8>(3, 64, Compression::Lzw)] {
        let directory = u32::from_le_bytes(good[4..8].try_into().unwrap()) as usize;
        for _ in 0..100 {
            let mut bad = good.clone();
            for _ in 0..=random(4) {
                // Most of the time in the directory, where sizes are.
                let at = match random(4) {
                    0 => random(bad.len()),
                    _ => directory + random(bad.len() - directory),
                };
                bad[at] = random(256) as u8;
            }
            let (_folder, file) = kept(&bad);
            refused += usize::from(examine(&file).is_err());
        }
    }
    assert!(refused > 20, "{refused} were refused");
}
