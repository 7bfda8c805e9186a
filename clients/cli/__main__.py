"""`python -m barnabas.clients.cli`: the command where its script is not known."""

import sys

from . import main

sys.exit(main())
