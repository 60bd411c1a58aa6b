"""rlmem as a library: what `import rlmem` offers."""

from rlmem.api.make import make_env as make_env
from rlmem.api.make import make_memory as make_memory
from rlmem.api.runs import Run as Run
from rlmem.api.runs import load as load
from rlmem.api.runs import train as train
from rlmem.api.trained import ActingState as ActingState
from rlmem.api.trained import TrainedAgent as TrainedAgent
