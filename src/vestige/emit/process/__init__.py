"""What a process reports about itself: start, stalls, stacks, crashes."""
