"""What tests share: programs, servers, samples."""
