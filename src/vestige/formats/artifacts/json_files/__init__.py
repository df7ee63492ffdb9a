"""JSON files of an artifact bundle: parsing, line-delimited files, schemas."""
