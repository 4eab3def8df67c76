"""`python -m weft ...`: the command of this package, by whatever name its folder has."""

import sys

from weft import NotServed, _execute, command

try:
    _execute(command(), sys.argv[1:])
except NotServed as error:
    print(f"weft: {error}", file=sys.stderr)
    sys.exit(125)
