"""Every recorded episode is replayed by some test."""

import re
from pathlib import Path

from conftest import env_recordings

SOURCES = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
STEMS = tuple(re.findall(r'recorded_env\("(\w+)"\)', SOURCES))


def test_every_recording_has_a_test_that_replays_it(request):
    files = env_recordings(request.config)
    assert len(files) >= 21
    assert not [path.name for path in files if not path.stem.startswith(STEMS)]
