"""Clock, file locks, system calls, import hooks: what every other package builds on."""
