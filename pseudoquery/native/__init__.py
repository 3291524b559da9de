"""What is compiled: products of small codes, each with its equal in numpy."""
