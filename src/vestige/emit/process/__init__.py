"""Records of a process about itself: start, stalls, stacks, crashes."""
