"""`python -m pellucid COMMAND` is `pellucid COMMAND`, where scripts are not on PATH."""

import sys

from pellucid.cli import main

sys.exit(main())
