#!/usr/bin/env python3
"""Tests of what finds the conditions of a source file."""

import unittest

import rust

SOURCE = '''\
fn check(a: u32, b: &[u32]) -> Result<(), Fault> {
    // if this > that { not code }
    if a >= 3 && (b.is_empty() || a == 7) {
        return Err(Fault::Bounds("if x { } >= y"));
    }
    look(a)?;
    let far = b.len() > 5;
    match a {
        1 if far => Ok(()),
        _ if let_it(b.iter().filter(|b| **b < a)) => Ok(()),
        _ => Ok(()),
    }
}

fn plain(a: u32) -> u32 {
    if a > 3 {
        return 1;
    }
    2
}

const fn fixed(a: u32) -> bool {
    a > 3
}

fn small(a: u32) -> bool {
    a <= 3
}

#[cfg(test)]
mod tests {
    fn of_a_test() -> bool {
        1 > 2
    }
}
'''


class Conditions(unittest.TestCase):
    def found(self):
        return rust.sites('f.rs', SOURCE)

    def test_each_condition_of_a_function_that_checks_is_found(self):
        found = [(site.function, site.text, site.ways) for site in self.found()]
        order, plain = ['always', 'never', 'bound'], ['always', 'never']
        self.assertEqual(found, [
            ('check', 'a >= 3', order),
            ('check', 'b.is_empty()', plain),
            ('check', 'a == 7', plain),
            ('check', 'look(a)', ['ignored']),
            ('check', 'b.len() > 5', order),
            ('check', 'far', plain),
            ('check', 'let_it(b.iter().filter(|b| **b < a))', plain),
            ('check', '**b < a', order),
            ('small', 'a <= 3', order),
        ])

    def test_what_is_put_in_can_be_taken_out_again(self):
        sites = self.found()
        for number, site in enumerate(sites):
            site.number = 10 * number
        text = rust.instrumented(SOURCE, sites)
        self.assertEqual(text.count('\n'), SOURCE.count('\n'), 'every line stays where it is')
        self.assertIn('if (if crate::weft_mutants::on(2) { a > 3 } else { crate::weft_mutants::term(0, a >= 3) }) && (', text)
        self.assertIn('{ let said = look(a); crate::weft_mutants::unless(30, said) }?;', text)
        self.assertIn('1 if crate::weft_mutants::term(50, far) => Ok(()),', text)
        self.assertEqual(text.count('('), text.count(')'))

    def test_the_same_condition_twice_has_two_names(self):
        source = 'fn f(a: u8) -> bool {\n    if a > 1 {\n        return true;\n    }\n    if a > 1 {\n        return g();\n    }\n}\n'
        names = [name for site in rust.sites('f.rs', source) for name in site.names()]
        self.assertEqual(names[0], 'f.rs | f | a > 1 | always')
        self.assertEqual(names[3], 'f.rs | f | a > 1 (#2) | always')
        self.assertEqual(len(names), len(set(names)))


if __name__ == '__main__':
    unittest.main()
