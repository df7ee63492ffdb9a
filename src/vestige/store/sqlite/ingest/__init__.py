"""Write batches of records to the tables, each record once."""
