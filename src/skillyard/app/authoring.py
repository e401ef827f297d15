"""What the commands about new skills and roles use: templates, and the roles that there are."""

from skillyard.catalog.agentfile import list_roles
from skillyard.catalog.bounds import read_bounds
from skillyard.catalog.roots import ROLES_FOLDER
from skillyard.install.new_skill import ProgramLanguage, create_role, create_skill, make_draft, resolve_role
