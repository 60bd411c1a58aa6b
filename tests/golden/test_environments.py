"""Every recorded episode is replayed by some test."""

import re

from golden_env import recordings
from helpers import ROOT

SOURCES = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
STEMS = tuple(re.findall(r'recorded_env\("(\w+)"\)', SOURCES))


def test_every_recording_has_a_test_that_replays_it(request):
    files = recordings(request.config)
    assert len(files) >= 21
    assert not [path.name for path in files if not path.stem.startswith(STEMS)]
