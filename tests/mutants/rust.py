"""Finds the conditions of a Rust source file, and wraps them so that a running test can be told to take one out.

No compiler's parser: it relies on the layout that rustfmt gives (binary operators stand between spaces) and on what is
found being compiled afterwards.
"""

import re
from dataclasses import dataclass


@dataclass
class Site:
    """A place that can be mutated. Its mutants are numbered from `number` on, one for each of `ways`."""

    path: str
    function: str
    text: str
    ways: list
    start: int
    end: int
    flipped: str = ''
    number: int = 0
    again: int = 1

    def names(self):
        text = ' '.join(self.text.split())
        nth = f' (#{self.again})' if self.again > 1 else ''
        return [f'{self.path} | {self.function} | {text}{nth} | {way}' for way in self.ways]


def masked(source):
    """The same text with comments, strings and character literals blanked, so that brackets can be counted."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\(?:u\{[^}]*\}|x..|.)|[^\\\'\n])\'', re.S)
    blank = lambda found: re.sub(r'[^\n]', '\x01' if found.group()[0] in '"b\'r' else ' ', found.group())
    return pattern.sub(blank, source)


PAIRS = {'(': ')', '[': ']', '{': '}'}


def closing(text, at):
    """Where the bracket that opens at `at` is closed."""
    depth = 0
    for here in range(at, len(text)):
        if text[here] in '([{':
            depth += 1
        elif text[here] in ')]}':
            depth -= 1
            if depth == 0:
                return here
    raise ValueError('a bracket is not closed')


def balanced(text):
    depth = 0
    for letter in text:
        depth += (letter in '([{') - (letter in ')]}')
        if depth < 0:
            return False
    return depth == 0


def at_top(text, start, end, pattern):
    """Matches of `pattern` between `start` and `end` that are in no bracket."""
    depth = 0
    here = start
    while here < end:
        if text[here] in '([{':
            depth += 1
        elif text[here] in ')]}':
            depth -= 1
        elif depth == 0:
            found = pattern.match(text, here, end)
            if found:
                yield found
                here = found.end()
                continue
        here += 1


def condition_end(text, start):
    """Where the condition of an `if` or of a guard ends, or None."""
    stop = re.compile(r'=>')
    depth = 0
    for here in range(start, len(text)):
        if depth == 0 and (text[here] == '{' or stop.match(text, here)):
            return here
        if text[here] in '([{':
            depth += 1
        elif text[here] in ')]}':
            depth -= 1
            if depth < 0:
                return None
    return None


def trimmed(text, start, end):
    while start < end and text[start].isspace():
        start += 1
    while end > start and (text[end - 1].isspace() or text[end - 1] == ','):
        end -= 1
    return start, end


def functions(text):
    """(name, start of body, end of body, signature) of each function that is not const and not a test's."""
    skipped = []
    for found in re.finditer(r'#\[(?:cfg\(test\)|cfg\(all\(test)[^\n]*\n(?:\s*#\[[^\n]*\n)*[^\n{;]*([{;])', text):
        if found.group(1) == '{':
            skipped.append((found.start(), closing(text, found.end() - 1)))
    for found in re.finditer(r'\bfn (\w+)', text):
        if any(start <= found.start() < end for start, end in skipped):
            continue
        before = text[text.rfind('\n', 0, found.start()) + 1:found.start()]
        body = next(at_top(text, found.end(), len(text), re.compile(r';')), None)
        brace = re.compile(r'\{').search(text, found.end())
        if 'const ' in before or brace is None or (body and body.start() < brace.start()):
            continue
        yield found.group(1), brace.start(), closing(text, brace.start()), text[found.start():brace.start()]


CHECKS = re.compile(r'\b\w*Fault\b|\bErr\(|\bRefus|\brefus|\bWcStatus::\w|\bErrno\b|\bError::')


def checks_something(signature, body):
    """The written rule: it can say no. It gives a Result, an Option or a bool, or names a fault, an error or a refusal."""
    gives = signature.split('->')[1] if '->' in signature else ''
    return bool(re.match(r'\s*(Result|Option|bool|io::Result)\b', gives) or CHECKS.search(body))


ORDER = re.compile(r'(?<=\s)(>=|<=|>|<)(?=\s)')
OTHER = {'>=': '>', '>': '>=', '<=': '<', '<': '<='}
LOGIC = re.compile(r'\|\||&&')
BOOLEAN = re.compile(r'(?<=\s)(>=|<=|==|!=|>|<|&&|\|\|)(?=\s)')


def terms(text, start, end):
    """The parts of a condition between `&&` and `||`, those in brackets too."""
    start, end = trimmed(text, start, end)
    cuts = list(at_top(text, start, end, LOGIC))
    if cuts:
        edges = [start] + [edge for cut in cuts for edge in (cut.start(), cut.end())] + [end]
        for first, last in zip(edges[::2], edges[1::2]):
            yield from terms(text, first, last)
    elif text[start] == '(' and closing(text, start) == end - 1:
        yield from terms(text, start + 1, end - 1)
    else:
        yield start, end


def sites(path, source):
    """Every place of a file that can be mutated, outer ones first."""
    text = masked(source)
    conditions = {}
    bodies = list(functions(text))
    inner = lambda at: max((f for f in bodies if f[1] <= at < f[2]), key=lambda f: f[1], default=None)

    def take(start, end):
        function = inner(start)
        if function and checks_something(function[3], text[function[1]:function[2]]):
            for first, last in terms(text, start, end):
                conditions[first, last] = function[0]

    for found in re.finditer(r'\bif\s+(?!let\b)', text):
        end = condition_end(text, found.end())
        if end is not None:
            take(found.end(), end)
    for found in re.finditer(r'\.(?:filter|is_some_and|is_none_or)\((?=\|)', text):
        end = closing(text, found.end() - 1)
        bar = text.index('|', found.end() + 1)
        if text[bar + 1:end].lstrip()[:1] not in ('{', ''):
            take(bar + 1, end)
    for found in re.finditer(r'\blet (?:mut )?\w+(?:: bool)? =\s', text):
        stop = next(at_top(text, found.end(), len(text), re.compile(r';')), None)
        if stop is None:
            continue
        value = text[found.end():stop.start()]
        if '{' not in value and not value.lstrip().startswith('|') and any(
                at_top(text, found.end(), stop.start(), BOOLEAN)):
            take(found.end(), stop.start())
    for name, start, end, signature in bodies:
        if re.search(r'->\s*bool\b', signature) and not re.search(r'[;{]', text[start + 1:end]):
            take(start + 1, end)

    calls = {}
    for found in re.finditer(r'\?;', text):
        start = max(text.rfind(mark, 0, found.start()) for mark in ';{}') + 1
        # What stands in brackets before it belongs to it.
        while not balanced(text[start:found.start()]):
            start = max(text.rfind(mark, 0, start - 1) for mark in ';{}') + 1
        start, end = trimmed(text, start, found.start())
        function = inner(start)
        simple = not re.search(r'^(let|return|use|if|match|for|while)\b|\s[-+|&]?=\s', text[start:end])
        if function and simple and checks_something(function[3], text[function[1]:function[2]]):
            calls[start, end] = function[0]

    result, seen = [], {}
    found = [(span, function, ['always', 'never']) for span, function in conditions.items()]
    found += [(span, function, ['ignored']) for span, function in calls.items()]
    for (start, end), function, ways in sorted(found, key=lambda item: (item[0][0], -item[0][1])):
        site = Site(path, function, source[start:end], ways, start, end)
        order = list(at_top(text, start, end, ORDER))
        if ways != ['ignored'] and len(order) == 1 and '::<' not in text[start:end]:
            op = order[0]
            site.ways.append('bound')
            flipped = source[start:op.start()] + OTHER[op.group()] + source[op.end():end]
            # On one line, so that the lines stay where they are.
            site.flipped = ' '.join(flipped.split())
        key = (function, ' '.join(site.text.split()))
        seen[key] = site.again = seen.get(key, 0) + 1
        result.append(site)
    return result


def instrumented(source, found):
    """The source with every site wrapped."""
    at = []
    for order, site in enumerate(found):
        before = f'crate::weft_mutants::term({site.number}, '
        after = ')'
        if site.ways == ['ignored']:
            # The `?;` behind it stays.
            before = f'{{ let said = '
            after = f'; crate::weft_mutants::unless({site.number}, said) }}'
        elif site.flipped:
            number = site.number + site.ways.index('bound')
            before = f'(if crate::weft_mutants::on({number}) {{ {site.flipped} }} else {{ {before}'
            after = ') })'
        # Of two that begin or end together the outer one (it came first) has its brackets outside.
        at.append((site.start, 1, order, before))
        at.append((site.end, 0, -order, after))
    parts, last = [], 0
    for place, _, _, words in sorted(at):
        parts += [source[last:place], words]
        last = place
    return ''.join(parts) + source[last:]
