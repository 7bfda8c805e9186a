"""`python -m barnabas.tools.cli`: the command where its script is not on the PATH."""

import sys

from . import main

sys.exit(main())
