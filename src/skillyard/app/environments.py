"""The environments of skills' Python programs, for `skillyard env` and the question that `skillyard run` asks."""

from skillyard.runners.environments import home_of, list_built, remove
from skillyard.runners.requirements import PackageChoice
from skillyard.runtime.build_environment import as_choice, build_environments, find_needed
