"""The field test: strangers' skills, run plainly and by Skillyard, compared. `./dev field FOLDER…`."""
