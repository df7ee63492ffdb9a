"""Outside shape of debug bundles."""
