"""One module per version of the tables, each naming its predecessor."""
