"""All scenarios: importing this fills the table `ALL`."""

import disk_and_network  # noqa: F401
import exploration  # noqa: F401
import joins  # noqa: F401
import losses  # noqa: F401
import memory_and_rewards  # noqa: F401
import network  # noqa: F401
import reserved  # noqa: F401
from scenario import ALL  # noqa: F401
