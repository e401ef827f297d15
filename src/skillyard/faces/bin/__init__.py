"""What the scripts that `init` writes into a project's bin/ do."""

SCRIPTS = ("file_editor", "skill_install_workflow", "skill_manager", "skill_scanner")
