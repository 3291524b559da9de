"""Read documents, queries and judgements from files, and write them again."""
