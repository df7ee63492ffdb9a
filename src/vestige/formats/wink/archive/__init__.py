"""The zip file of a debug bundle: directory, member names, limits, damage, salvage."""
