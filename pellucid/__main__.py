"""`python -m pellucid COMMAND` is `pellucid COMMAND`, for environments whose scripts are not on PATH."""

import sys

from pellucid.cli import main

sys.exit(main())
