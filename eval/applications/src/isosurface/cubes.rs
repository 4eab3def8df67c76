//! Marching cubes: the surface on which a field has one value, as triangles.
//!
//! What a cube of eight points has of the surface depends on which of them lie inside, above the value. Those 256 cases
//! are not listed here but found: on each face of the cube a line cuts the inside corners off, and the lines of the six
//! faces close to loops, which are cut into triangles. Where two opposite corners of a face lie inside, each is cut off
//! by itself; the cube on the other side of the face does the same, so the surface has no holes.

use std::sync::OnceLock;

/// A point of the surface.
pub type Point = [f32; 3];
/// Three points, seen from outside in the order of the clock's hands reversed.
pub type Triangle = [Point; 3];

/// Points of a field, in each direction, and the first of them in the whole field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where the block begins.
    pub origin: [u32; 3],
    /// Its points.
    pub points: [u32; 3],
}

impl Block {
    /// How many points it has.
    pub fn len(self) -> usize {
        self.points.iter().map(|&points| points as usize).product()
    }
}

/// The edges of a cube by their two corners, of which the first has the lower number. Bit 0 of a corner's number is its
/// x, bit 1 its y, bit 2 its z.
const EDGES: [[usize; 2]; 12] = [
    [0, 1],
    [2, 3],
    [4, 5],
    [6, 7],
    [0, 2],
    [1, 3],
    [4, 6],
    [5, 7],
    [0, 4],
    [1, 5],
    [2, 6],
    [3, 7],
];

/// The faces by their corners, seen from outside in the order of the clock's hands reversed.
const FACES: [[usize; 4]; 6] = [
    [0, 4, 6, 2],
    [1, 3, 7, 5],
    [0, 1, 5, 4],
    [2, 6, 7, 3],
    [0, 2, 3, 1],
    [4, 5, 7, 6],
];

/// The triangles of each case, by the edges that their points lie on.
type Cases = [Vec<[usize; 3]>; 256];

/// Gives each triangle of the surface at `value` to `take`. `field` has the block's points, x runs quickest.
pub fn surface(block: Block, field: &[f32], value: f32, mut take: impl FnMut(Triangle)) {
    static CASES: OnceLock<Cases> = OnceLock::new();
    let cases = CASES.get_or_init(|| std::array::from_fn(triangles));
    let [width, depth, height] = block.points.map(|points| points as usize);
    let offset = |corner: usize| (corner & 1) + width * ((corner >> 1 & 1) + depth * (corner >> 2));
    let offsets: [usize; 8] = std::array::from_fn(offset);
    for z in 0..height.saturating_sub(1) {
        for y in 0..depth.saturating_sub(1) {
            for x in 0..width.saturating_sub(1) {
                let first = x + width * (y + depth * z);
                let values = offsets.map(|offset| field[first + offset]);
                let inside = values
                    .iter()
                    .rev()
                    .fold(0, |case, &at| case << 1 | usize::from(at > value));
                for edges in &cases[inside] {
                    take(
                        edges.map(|edge| {
                            point(block.origin, [x, y, z], EDGES[edge], &values, value)
                        }),
                    );
                }
            }
        }
    }
}

/// Where the surface meets an edge of a cube. Every cube that has the edge computes the same.
fn point(
    origin: [u32; 3],
    cube: [usize; 3],
    [from, to]: [usize; 2],
    values: &[f32; 8],
    value: f32,
) -> Point {
    let part = (value - values[from]) / (values[to] - values[from]);
    std::array::from_fn(|axis| {
        let start = (origin[axis] as usize + cube[axis] + (from >> axis & 1)) as f32;
        match from >> axis & 1 == to >> axis & 1 {
            true => start,
            false => start + part,
        }
    })
}

/// The triangles of one case.
fn triangles(inside: usize) -> Vec<[usize; 3]> {
    let is_inside = |corner: usize| inside >> corner & 1 == 1;
    // For each edge that a line of a face begins at, the one that it ends at.
    let mut to: [Option<usize>; 12] = [None; 12];
    for face in FACES {
        for (at, &corner) in face.iter().enumerate() {
            let before = face[(at + 3) % 4];
            // A row of inside corners begins here; the line goes round it.
            if !is_inside(corner) || is_inside(before) {
                continue;
            }
            let behind = (1..4).find(|&steps| !is_inside(face[(at + steps) % 4]));
            let Some(behind) = behind else { continue };
            let last = face[(at + behind - 1) % 4];
            to[edge(before, corner)] = Some(edge(last, face[(at + behind) % 4]));
        }
    }
    let mut all = Vec::new();
    for start in 0..12 {
        let Some(mut next) = to[start].take() else {
            continue;
        };
        let mut corners = vec![start];
        while next != start {
            corners.push(next);
            next = to[next]
                .take()
                .expect("each line begins where another one ends");
        }
        all.extend((2..corners.len()).map(|at| [start, corners[at - 1], corners[at]]));
    }
    all
}

fn edge(one: usize, other: usize) -> usize {
    let ends = [one.min(other), one.max(other)];
    EDGES
        .iter()
        .position(|edge| *edge == ends)
        .expect("neighbours on a face")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A field of this many points each way, nothing at the border, and whatever `at` says inside.
    fn field(side: u32, at: impl Fn([u32; 3]) -> f32) -> (Block, Vec<f32>) {
        let block = Block {
            origin: [0; 3],
            points: [side; 3],
        };
        let mut field = Vec::new();
        for z in 0..side {
            for y in 0..side {
                for x in 0..side {
                    let is_border = [x, y, z].iter().any(|&at| at == 0 || at == side - 1);
                    field.push(if is_border { 0.0 } else { at([x, y, z]) });
                }
            }
        }
        (block, field)
    }

    fn all(block: Block, field: &[f32]) -> Vec<Triangle> {
        let mut all = Vec::new();
        surface(block, field, 0.5, |triangle| all.push(triangle));
        all
    }

    fn bits(point: Point) -> [u32; 3] {
        point.map(f32::to_bits)
    }

    /// Each side of a triangle is one of another that goes the other way.
    fn is_closed(triangles: &[Triangle]) -> bool {
        let mut sides: HashMap<_, i32> = HashMap::new();
        for triangle in triangles {
            for at in 0..3 {
                let (from, to) = (bits(triangle[at]), bits(triangle[(at + 1) % 3]));
                *sides.entry((from, to)).or_default() += 1;
                *sides.entry((to, from)).or_default() -= 1;
            }
        }
        sides.values().all(|&open| open == 0)
    }

    /// What a closed surface holds, which is positive where its triangles are seen from outside.
    fn volume(triangles: &[Triangle]) -> f32 {
        let each = |[a, b, c]: &Triangle| {
            let cross = [
                b[1] * c[2] - b[2] * c[1],
                b[2] * c[0] - b[0] * c[2],
                b[0] * c[1] - b[1] * c[0],
            ];
            (a[0] * cross[0] + a[1] * cross[1] + a[2] * cross[2]) / 6.0
        };
        triangles.iter().map(each).sum()
    }

    #[test]
    fn a_ball_is_closed_and_holds_what_it_should() {
        let (block, field) = field(24, |at| {
            let squares = at.map(|x| (x as f32 - 11.5) * (x as f32 - 11.5));
            (8.5 - squares.iter().sum::<f32>().sqrt()).clamp(0.0, 1.0)
        });
        let triangles = all(block, &field);
        assert!(is_closed(&triangles));
        let (volume, wanted) = (volume(&triangles), 4.0 / 3.0 * std::f32::consts::PI * 512.0);
        assert!((volume / wanted - 1.0).abs() < 0.03, "{volume}, {wanted}");
    }

    #[test]
    fn whatever_lies_inside_the_surface_has_no_hole() {
        let mut state = 7_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let noise: Vec<f32> = (0..1000).map(|_| random()).collect();
        let (block, field) = field(10, |[x, y, z]| noise[(x + 10 * (y + 10 * z)) as usize]);
        let triangles = all(block, &field);
        assert!(triangles.len() > 500 && is_closed(&triangles));
        assert!(volume(&triangles) > 0.0);
    }

    #[test]
    fn a_field_in_blocks_has_the_triangles_of_the_whole() {
        let value = |[x, y, z]: [u32; 3]| ((x * 7 + y * 13 + z * 29) % 11) as f32 / 10.0;
        let (whole, points) = field(11, value);
        let mut wanted: Vec<_> = all(whole, &points)
            .iter()
            .map(|three| three.map(bits))
            .collect();
        let mut found = Vec::new();
        for (origin, points_x) in [(0, 5), (4, 7)] {
            let block = Block {
                origin: [origin, 0, 0],
                points: [points_x, 11, 11],
            };
            let mut part = Vec::new();
            for row in points.chunks(11) {
                part.extend_from_slice(&row[origin as usize..(origin + points_x) as usize]);
            }
            surface(block, &part, 0.5, |triangle| found.push(triangle.map(bits)));
        }
        wanted.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, wanted);
    }
}
