"""Clock, file locks, system calls and import hooks, which every other package builds on."""
