"""What stands on the PYTHONPATH of a JSON skill: our package with nothing but its name.

The Python that runs a skill is the user's, and has no Skillyard installed. With this folder on its path
`from skillyard.skill import action, serve` finds the module beside us, and nothing else of ours or of our
dependencies comes into sight.
"""

import os

__path__ = [__file__.rsplit(os.sep, 3)[0]]
